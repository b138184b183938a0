// The cookie holds the token itself, so the server keeps nothing, and a token that is revoked ends
// all that was opened with it.
#include "server/http/sign_in.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/token_form.h"
#include "server/http/connect_error.h"

namespace trainyard::http {
namespace {

// With this prefix, browsers accept the cookie only from this host itself, over TLS.
constexpr absl::string_view kCookie = "__Host-trainyard";
constexpr int64_t kBodyBytesMax = 1024;
// A browser forgets the cookie after this time. The token may expire before.
constexpr int kSecondsMax = 30 * 24 * 3600;

// Returns true for text that can be part of a header.
bool MayBeToken(absl::string_view text) {
  if (!absl::StartsWith(text, kUserTokenPrefix)) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') return false;
  }
  return true;
}

Response CookieResponse(absl::string_view value, int seconds) {
  Response response;
  response.status = 204;
  response.headers.emplace_back("Set-Cookie",
                                absl::StrCat(kCookie, "=", value, "; Path=/; Max-Age=", seconds,
                                             "; Secure; HttpOnly; SameSite=Strict"));
  return response;
}

Response Refusal(absl::string_view reason, absl::string_view message) {
  return ErrorResponse(MakeError(absl::StatusCode::kInvalidArgument, reason, message));
}

Response SignIn(const ExchangePtr& exchange) {
  const std::string body = exchange->TakeBody().text;
  // A form of another site could not send JSON.
  if (!absl::StartsWithIgnoreCase(exchange->request().Header("content-type"), "application/json")) {
    return ErrorResponse(415, MakeError(absl::StatusCode::kInvalidArgument, "CONTENT_TYPE",
                                        "send JSON with Content-Type: application/json"));
  }
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object() || !json.contains("token") || !json["token"].is_string()) {
    return Refusal("INVALID_JSON", "expected {\"token\": \"tyk_...\"}");
  }
  const std::string token(absl::StripAsciiWhitespace(json["token"].get<std::string>()));
  if (!MayBeToken(token)) {
    return Refusal(
        "NOT_A_TOKEN",
        "this is no token; one begins with tyk_, and `trainyard tokens create` makes it");
  }
  return CookieResponse(token, kSecondsMax);
}

}  // namespace

void AddSignIn(Routes& routes) {
  routes.Add(kSignInPath, {"POST", "DELETE"}, [](const ExchangePtr& exchange) {
    exchange->Answer(exchange->request().method == "DELETE" ? CookieResponse("", 0)
                                                            : SignIn(exchange));
  });
}

bool IsSignIn(const Request& request) {
  int64_t bytes = 0;
  return request.path == kSignInPath && request.method == "POST" &&
         absl::SimpleAtoi(request.Header("content-length"), &bytes) && bytes >= 0 &&
         bytes <= kBodyBytesMax;
}

std::optional<absl::string_view> CookieOf(const Request& request, absl::string_view name) {
  const std::vector<absl::string_view> cookies = absl::StrSplit(request.Header("cookie"), ';');
  for (absl::string_view cookie : cookies) {
    cookie = absl::StripAsciiWhitespace(cookie);
    if (absl::ConsumePrefix(&cookie, name) && absl::ConsumePrefix(&cookie, "=")) return cookie;
  }
  return std::nullopt;
}

bool IsOfOrigin(const Request& request, absl::string_view origin) {
  const absl::string_view site = request.Header("sec-fetch-site");
  const absl::string_view given = request.Header("origin");
  return (site.empty() || site == "same-origin" || site == "none") &&
         (given.empty() || given == origin);
}

void AdoptCookie(Request& request) {
  if (request.headers.contains("authorization")) return;
  if (!IsOfOrigin(request, absl::StrCat("https://", request.Header("host")))) return;
  const absl::string_view token = CookieOf(request, kCookie).value_or("");
  if (MayBeToken(token)) request.headers.emplace("authorization", absl::StrCat("Bearer ", token));
}

}  // namespace trainyard::http
