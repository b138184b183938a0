// Adapts libcurl.
#include "server/notify/webhook.h"

#include <curl/curl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::notify {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);

struct Call {
  const AddressRules& rules;
  const std::atomic<bool>& is_stopping;
  std::string host;
  std::string why_forbidden;
  size_t answer_bytes = 0;
};

// The address is looked at when a socket is made for it, because a name may resolve to another one
// each time.
curl_socket_t OpenSocket(void* data, curlsocktype, curl_sockaddr* address) {
  auto& call = *static_cast<Call*>(data);
  call.why_forbidden = WhyForbidden(address->addr, call.host, call.rules.webhooks);
  if (!call.why_forbidden.empty()) return CURL_SOCKET_BAD;
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t TakeAnswer(char*, size_t size, size_t count, void* data) {
  auto& call = *static_cast<Call*>(data);
  call.answer_bytes += size * count;
  return call.answer_bytes > kAnswerBytesMax ? 0 : size * count;
}

int Progress(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Call*>(data)->is_stopping ? 1 : 0;
}

Sent ResultOf(CURL* curl, CURLcode code, const Call& call) {
  if (!call.why_forbidden.empty()) {
    return {false, false,
            std::string(error::NotifyForbidden(call.host, call.why_forbidden).message())};
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  // An answer that is too long, or is cut off, is an answer all the same.
  if (status == 0 || (code != CURLE_OK && code != CURLE_WRITE_ERROR)) {
    return {false, true, curl_easy_strerror(code == CURLE_OK ? CURLE_GOT_NOTHING : code)};
  }
  const bool is_taken = status >= 200 && status < 300;
  const bool may_pass = status >= 500 || status == 408 || status == 425 || status == 429;
  std::string result = absl::StrCat("HTTP ", status);
  if (status >= 300 && status < 400) result += ", a redirect, which is not followed";
  return {is_taken, !is_taken && may_pass, std::move(result)};
}

}  // namespace

Sent PostWebhook(const std::string& url, const std::map<std::string, std::string>& headers,
                 const std::string& body, const AddressRules& rules,
                 const std::atomic<bool>& is_stopping) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  if (const absl::Status allowed = CheckWebhook(url, rules); !allowed.ok()) {
    return {false, false, std::string(allowed.message())};
  }
  Call call{rules, is_stopping, HostOf(url), "", 0};
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  curl_slist* lines = nullptr;
  for (const auto& [name, value] : headers) {
    lines = curl_slist_append(lines, absl::StrCat(name, ": ", value).c_str());
  }
  lines = curl_slist_append(lines, "Expect:");
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> owned(lines,
                                                                          curl_slist_free_all);
  CURL* handle = curl.get();
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle, CURLOPT_PROXY, "");
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, lines);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "trainyard");
  curl_easy_setopt(handle, CURLOPT_POST, 1L);
  curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(kWebhookTimeout)));
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(kConnectTimeout)));
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, &call);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, TakeAnswer);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &call);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, Progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &call);
  const CURLcode code = curl_easy_perform(handle);
  return ResultOf(handle, code, call);
}

}  // namespace trainyard::notify
