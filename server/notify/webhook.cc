// Calls webhooks, of whose answers only the number counts.
#include "server/notify/webhook.h"

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/curl/caller.h"

namespace trainyard::notify {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);

Sent ResultOf(int status) {
  const bool is_taken = status >= 200 && status < 300;
  const bool may_pass = status >= 500 || status == 408 || status == 425 || status == 429;
  std::string result = absl::StrCat("HTTP ", status);
  if (status >= 300 && status < 400) result += ", a redirect, which is not followed";
  return {is_taken, !is_taken && may_pass, std::move(result)};
}

// The message of the status is not told: it may have words of the receiver, such as the names in
// its certificate, which the user need not be able to see.
std::string ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      return "no answer came in time";
    case absl::StatusCode::kFailedPrecondition:
      return "the certificate of the host does not hold";
    case absl::StatusCode::kCancelled:
      return "the server is stopping";
    default:
      return "no connection, or no whole answer";
  }
}

}  // namespace

Sent PostWebhook(const std::string& url, const std::map<std::string, std::string>& headers,
                 const std::string& body, const AddressRules& rules,
                 const std::atomic<bool>& is_stopping) {
  if (const absl::Status allowed = CheckWebhook(url, rules); !allowed.ok()) {
    return {false, false, std::string(allowed.message())};
  }
  const std::string host = HostOf(url);
  curl::Request request;
  request.method = "POST";
  request.url = url;
  request.headers.assign(headers.begin(), headers.end());
  request.body = body;
  request.connect_timeout = kConnectTimeout;
  request.timeout = kWebhookTimeout;
  request.body_bytes_max = kAnswerBytesMax;
  request.cuts_body = true;
  request.is_stopping = &is_stopping;
  request.why_forbidden = [&](const sockaddr& address) {
    const std::string why = WhyForbidden(address, host, rules.webhooks);
    return why.empty() ? why : std::string(error::NotifyForbidden(host, why).message());
  };
  // An administrator may change what is forbidden, so connections are not kept.
  curl::Caller caller;
  const auto response = caller.Call(request);
  if (response.ok()) return ResultOf(response->status);
  if (absl::IsPermissionDenied(response.status())) {
    return {false, false, std::string(response.status().message())};
  }
  return {false, true, ResultOf(response.status())};
}

}  // namespace trainyard::notify
