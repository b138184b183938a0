// The table is short, and a look-up costs little beside a call.
#include "server/http/routes.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/strings.h"
#include "server/http/connect_error.h"

namespace trainyard::http {
namespace {

constexpr size_t kShownBytesMax = 200;

}  // namespace

void Routes::Add(std::string path, std::vector<std::string> methods, Handler handler) {
  routes_.push_back({std::move(path), std::move(methods), std::move(handler)});
}

const Routes::Route* Routes::Find(absl::string_view path) const {
  const Route* found = nullptr;
  for (const Route& route : routes_) {
    const bool fits =
        absl::EndsWith(route.path, "/") ? absl::StartsWith(path, route.path) : path == route.path;
    if (fits && (found == nullptr || route.path.size() > found->path.size())) found = &route;
  }
  return found;
}

void Routes::Handle(const ExchangePtr& exchange) const {
  const Request& request = exchange->request();
  const Route* route = Find(request.path);
  if (route == nullptr && pages_ && request.method == "GET" &&
      absl::StrContains(request.Header("accept"), "text/html")) {
    return pages_(exchange);
  }
  if (route == nullptr) {
    // Connect says `unimplemented` for a call that does not exist, and 404.
    exchange->Answer(ErrorResponse(
        404,
        MakeError(absl::StatusCode::kUnimplemented, "UNKNOWN_PATH",
                  absl::StrCat("there is nothing at '", PlainText(request.path, kShownBytesMax),
                               "'; calls are at paths such as "
                               "/trainyard.v1.JobService/ListJobs"))));
    return;
  }
  const std::vector<std::string>& methods = route->methods;
  if (std::find(methods.begin(), methods.end(), request.method) == methods.end()) {
    Response response = ErrorResponse(
        405, MakeError(absl::StatusCode::kUnimplemented, "METHOD_NOT_ALLOWED",
                       absl::StrCat("the method ", PlainText(request.method, kShownBytesMax),
                                    " is not served here; use ", absl::StrJoin(methods, " or "))));
    response.headers.emplace_back("Allow", absl::StrJoin(methods, ", "));
    exchange->Answer(std::move(response));
    return;
  }
  route->handler(exchange);
}

}  // namespace trainyard::http
