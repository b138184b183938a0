// The services say who asks, as for every call, so that tokens and roles mean the same here.
#include "server/http/metrics_page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/http/connect_error.h"
#include "server/http/json.h"
#include "server/http/unary_call.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::http {
namespace {

// The format of prometheus-cpp's text.
constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

absl::Status CheckViewer(const google::protobuf::Message& message) {
  v1::WhoAmIResponse caller;
  caller.CopyFrom(message);
  if (caller.role() >= v1::ROLE_VIEWER) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied, "ROLE_TOO_LOW",
                   absl::StrCat("'", caller.user(),
                                "' may not read metrics, which needs the role viewer. An "
                                "administrator sets roles: trainyard users set ",
                                caller.user(), " --role viewer"));
}

}  // namespace

void ServeMetrics(const RpcMethod& who_am_i, const WriteMetrics& write,
                  const ExchangePtr& exchange) {
  CallUnary(who_am_i, *NewMessage(*who_am_i.descriptor->input_type()), exchange,
            [&write, exchange](const absl::StatusOr<MessagePtr>& caller) {
              absl::Status admitted = caller.status();
              if (admitted.ok()) admitted = CheckViewer(**caller);
              if (!admitted.ok()) return exchange->Answer(ErrorResponse(admitted));
              write([exchange](absl::StatusOr<std::string> text) {
                if (!text.ok()) return exchange->Answer(ErrorResponse(text.status()));
                Response response;
                response.content_type = kContentType;
                response.body = *std::move(text);
                exchange->Answer(std::move(response));
              });
            });
}

}  // namespace trainyard::http
