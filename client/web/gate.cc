// The rules are in the order in which a request meets them.
#include "client/web/gate.h"

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/tls/digest.h"
#include "server/http/connect_error.h"
#include "server/http/sign_in.h"
#include "server/http/url.h"

namespace trainyard::web {
namespace {

constexpr size_t kSecretBytes = 32;

std::string RandomText() {
  return absl::WebSafeBase64Escape(tls::SecretBytes(kSecretBytes));
}

// The time that this takes says nothing about how much of the text is right.
bool IsSame(absl::string_view given, absl::string_view secret) {
  if (given.size() != secret.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < secret.size(); ++i) {
    difference |= static_cast<unsigned>(given[i]) ^ static_cast<unsigned>(secret[i]);
  }
  return difference == 0;
}

// Returns an error as a browser shows it, or as programs read it.
http::Response Refuse(const http::Request& request, int status, absl::string_view reason,
                      absl::string_view message) {
  if (!absl::StrContains(request.Header("accept"), "text/html")) {
    return http::ErrorResponse(status,
                               MakeError(absl::StatusCode::kUnauthenticated, reason, message));
  }
  http::Response response;
  response.status = status;
  response.content_type = "text/html; charset=utf-8";
  response.headers.emplace_back("Content-Security-Policy", "default-src 'none'");
  response.body = absl::StrCat("<!doctype html><title>Trainyard</title><h1>Trainyard</h1><p>",
                               message, "</p>\n");
  return response;
}

}  // namespace

Gate::Gate(int port)
    : port_(port),
      cookie_(absl::StrCat("trainyard_", port)),
      secret_(RandomText()),
      code_(RandomText()) {}

std::string Gate::LinkTo(absl::string_view path) const {
  return absl::StrCat("http://127.0.0.1:", port_, http::kSignInPath, "?code=", code_, "&to=", path);
}

std::optional<http::Response> Gate::Check(http::Request& request) {
  // A name of another site may be bound to this address, so that a page of it may read answers.
  const absl::string_view host = request.Header("host");
  if (host != absl::StrCat("127.0.0.1:", port_) && host != absl::StrCat("localhost:", port_)) {
    return Refuse(request, 421, "WRONG_HOST", absl::StrCat("Open http://127.0.0.1:", port_, "/."));
  }
  const bool is_signed_in = HasCookie(request);
  // The link is opened by another program, or from another page, and it changes nothing.
  if (request.method == "GET" && request.path == http::kSignInPath)
    return SignIn(request, is_signed_in);
  if (!http::IsOfOrigin(request, absl::StrCat("http://", host))) {
    return Refuse(request, 403, "OTHER_ORIGIN", "Pages of other sites may not ask this server.");
  }
  if (!is_signed_in) {
    return Refuse(request, 401, "NOT_SIGNED_IN",
                  "This browser is not signed in. Run `trainyard web`, and open the link that it "
                  "prints.");
  }
  if (request.method == "DELETE" && request.path == http::kSignInPath) return SignOut();
  // The connection to the server says who the user is.
  request.headers.erase("authorization");
  return std::nullopt;
}

std::optional<http::Response> Gate::SignIn(const http::Request& request, bool is_signed_in) {
  const auto values =
      http::ParseQuery(request.query).value_or(std::map<std::string, std::string>());
  const auto code = values.find("code");
  const bool is_right = code != values.end() && IsSame(code->second, code_);
  if (!is_signed_in && !is_right) {
    return Refuse(request, 401, "NOT_SIGNED_IN",
                  "This link is of another run of `trainyard web`. Run it again, and open the link "
                  "that it prints.");
  }
  if (!is_signed_in && is_code_used_) {
    return Refuse(request, 401, "NOT_SIGNED_IN",
                  "This link was used before, and it is good once. Run `trainyard web` again for "
                  "another one.");
  }
  http::Response response;
  response.status = 303;
  const auto to = values.find("to");
  // A path of this server, and no address of another one.
  const bool is_path = to != values.end() && absl::StartsWith(to->second, "/") &&
                       !absl::StartsWith(to->second, "//") &&
                       to->second.find_first_of("\\\r\n") == std::string::npos;
  response.headers.emplace_back("Location", is_path ? to->second : "/");
  if (!is_signed_in) {
    is_code_used_ = true;
    response.headers.emplace_back(
        "Set-Cookie", absl::StrCat(cookie_, "=", secret_, "; Path=/; HttpOnly; SameSite=Strict"));
  }
  return response;
}

http::Response Gate::SignOut() const {
  http::Response response;
  response.status = 204;
  response.headers.emplace_back("Set-Cookie", absl::StrCat(cookie_, "=; Path=/; Max-Age=0"));
  return response;
}

bool Gate::HasCookie(const http::Request& request) const {
  return IsSame(http::CookieOf(request, cookie_).value_or(""), secret_);
}

}  // namespace trainyard::web
