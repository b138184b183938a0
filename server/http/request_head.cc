// Beast has parsed the head, so names and values have the right characters.
#include "server/http/request_head.h"

#include <boost/beast/http/status.hpp>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::http {
namespace {

// Such an answer must not have a Content-Length: RFC 9110, 8.6.
constexpr int kNoContent = 204;

absl::string_view View(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

// These headers may be there only once, since two readers could each believe another one.
bool IsSingle(const std::string& name) {
  static const auto* names = new std::set<std::string>{"authorization",
                                                       "connect-timeout-ms",
                                                       "content-length",
                                                       "content-type",
                                                       "cookie",
                                                       "host",
                                                       "last-event-id",
                                                       "origin",
                                                       "range",
                                                       "trainyard-as",
                                                       "transfer-encoding"};
  return names->contains(name);
}

bool HasHeader(const Response& response, absl::string_view name) {
  for (const auto& header : response.headers) {
    if (absl::EqualsIgnoreCase(header.first, name)) return true;
  }
  return false;
}

}  // namespace

std::optional<Refusal> ReadHead(
    const boost::beast::http::header<true, boost::beast::http::fields>& head, Request& request) {
  request.method = std::string(View(head.method_string()));
  const absl::string_view target = View(head.target());
  if (!absl::StartsWith(target, "/")) {
    return Refusal{400, "INVALID_REQUEST",
                   absl::StrCat("the target '", PlainText(std::string(target), 100),
                                "' is no path that begins with '/'")};
  }
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != absl::string_view::npos) request.query = std::string(target.substr(question + 1));
  for (const auto& field : head) {
    const std::string name = absl::AsciiStrToLower(View(field.name_string()));
    const absl::string_view value = View(field.value());
    const auto [known, is_new] = request.headers.emplace(name, value);
    if (is_new) continue;
    if (IsSingle(name)) {
      return Refusal{400, "INVALID_REQUEST", absl::StrCat("the header ", name, " came twice")};
    }
    absl::StrAppend(&known->second, ", ", value);
  }
  // Two readers could see the end of such a body in two places, and what follows as a request.
  if (request.headers.contains("transfer-encoding")) {
    return Refusal{411, "LENGTH_REQUIRED",
                   "a body must come with Content-Length, and without Transfer-Encoding"};
  }
  if (head.version() == 11 && !request.headers.contains("host")) {
    return Refusal{400, "INVALID_REQUEST", "the request has no header Host"};
  }
  return std::nullopt;
}

std::string HeadText(const Response& response, bool is_chunked, bool keeps_alive) {
  const auto reason = boost::beast::http::obsolete_reason(
      boost::beast::http::int_to_status(static_cast<unsigned>(response.status)));
  std::string text = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", reason.empty() ? absl::string_view("Error") : View(reason),
      "\r\nContent-Type: ", response.content_type, "\r\nX-Content-Type-Options: nosniff\r\n");
  // An answer is as old as the data in it, unless its handler knows better.
  if (!HasHeader(response, "Cache-Control")) absl::StrAppend(&text, "Cache-Control: no-store\r\n");
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  if (is_chunked) {
    absl::StrAppend(&text, "Transfer-Encoding: chunked\r\n");
  } else if (!HasHeader(response, "Content-Length") && response.idle_part.empty() &&
             response.status != kNoContent) {
    absl::StrAppend(&text, "Content-Length: ", response.body.size(), "\r\n");
  }
  absl::StrAppend(&text, keeps_alive ? "" : "Connection: close\r\n", "\r\n");
  return text;
}

}  // namespace trainyard::http
