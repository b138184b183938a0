// Adds to each call what the API server wants to know of its caller.
#include "common/kubernetes/api_client.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::kubernetes {
namespace {

constexpr int64_t kTokenFileBytesMax = 64 * 1024;
constexpr int kUnauthorized = 401;

}  // namespace

Access AccessOfPod(std::string url, const std::string& folder) {
  Access access;
  access.url = std::move(url);
  access.authorities_file = JoinPath(folder, "ca.crt");
  access.token_file = JoinPath(folder, "token");
  return access;
}

ApiClient::ApiClient(Access access, Limits limits, const std::atomic<bool>& is_stopping)
    : access_(std::move(access)), limits_(limits), is_stopping_(is_stopping) {}

absl::StatusOr<std::string> ApiClient::Token() const {
  if (access_.token_file.empty()) return access_.token;
  auto token = ReadFile(access_.token_file, kTokenFileBytesMax);
  if (!token.ok()) return absl::NotFoundError(token.status().message());
  absl::StripAsciiWhitespace(&*token);
  return token;
}

absl::StatusOr<curl::Response> ApiClient::Call(const std::string& method, const std::string& path,
                                               const std::string& body) {
  TY_ASSIGN_OR_RETURN(std::string token, Token());
  for (bool is_again = false;; is_again = true) {
    curl::Request request;
    request.method = method;
    request.url = absl::StrCat(access_.url, path);
    request.headers = {{"accept", "application/json"}};
    if (!token.empty()) {
      request.headers.emplace_back("authorization", absl::StrCat("Bearer ", token));
    }
    if (!body.empty()) request.headers.emplace_back("content-type", "application/json");
    request.body = body;
    request.connect_timeout = limits_.timeout;
    request.timeout = limits_.timeout;
    request.body_bytes_max = limits_.answer_bytes_max;
    if (absl::StartsWith(access_.url, "https:")) {
      request.authorities_file = access_.authorities_file;
      request.authorities = access_.authorities;
      request.certificate = access_.certificate;
      request.key = access_.key;
    }
    request.is_stopping = &is_stopping_;
    TY_ASSIGN_OR_RETURN(curl::Response response, caller_.Call(request));
    if (response.status != kUnauthorized || is_again) return response;
    TY_ASSIGN_OR_RETURN(std::string renewed, Token());
    if (renewed == token) return response;
    token = std::move(renewed);
  }
}

std::string EscapeQuery(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._~", c)) {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

}  // namespace trainyard::kubernetes
