// Adapts libcurl.
#include "common/curl/caller.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/curl/loopback.h"

namespace trainyard::curl {
namespace {

// Each idle handle holds a connection, and more than these are never useful to one caller.
constexpr size_t kIdleMax = 16;
// No server that we call sends nearly as much. libcurl itself refuses lines over 100 KiB.
constexpr size_t kHeadersMax = 200;

struct Call {
  const Request& request;
  Response response;
  absl::Status status;  // of our own refusals
  bool is_cut = false;
};

curl_socket_t OpenSocket(void* data, curlsocktype, curl_sockaddr* address) {
  auto& call = *static_cast<Call*>(data);
  const std::string why = call.request.why_forbidden(address->addr);
  if (!why.empty()) {
    call.status = absl::PermissionDeniedError(why);
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t TakeHeader(char* text, size_t size, size_t count, void* data) {
  auto& call = *static_cast<Call*>(data);
  const absl::string_view line(text, size * count);
  if (absl::StartsWith(line, "HTTP/")) {
    // An answer 100 or a redirect may come before the real one.
    call.response.headers.clear();
    call.response.body.clear();
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon != line.npos && call.response.headers.size() < kHeadersMax) {
    call.response.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return line.size();
}

// Each handle knows its call as its private data, so that the status can be asked here.
size_t TakeBody(char* text, size_t size, size_t count, void* handle) {
  void* data = nullptr;
  curl_easy_getinfo(static_cast<CURL*>(handle), CURLINFO_PRIVATE, &data);
  auto& call = *static_cast<Call*>(data);
  long status = 0;
  curl_easy_getinfo(static_cast<CURL*>(handle), CURLINFO_RESPONSE_CODE, &status);
  call.response.status = static_cast<int>(status);
  const absl::string_view piece(text, size * count);
  if (call.request.sink && status >= 200 && status < 300) {
    call.status = call.request.sink(call.response, piece);
  } else if (static_cast<int64_t>(call.response.body.size() + piece.size()) >
             call.request.body_bytes_max) {
    if (call.request.cuts_body) {
      call.is_cut = true;
      return 0;
    }
    call.status = absl::ResourceExhaustedError(
        absl::StrCat("the answer has over ", call.request.body_bytes_max, " bytes"));
  } else {
    call.response.body.append(piece.data(), piece.size());
  }
  return call.status.ok() ? piece.size() : 0;
}

int Progress(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto* is_stopping = static_cast<Call*>(data)->request.is_stopping;
  return is_stopping != nullptr && *is_stopping ? 1 : 0;
}

absl::Status StatusOf(CURLcode code, const char* message) {
  const std::string text = message[0] != '\0' ? message : curl_easy_strerror(code);
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
      return absl::CancelledError("the call was cancelled");
    case CURLE_OPERATION_TIMEDOUT:
      return absl::DeadlineExceededError(text);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return absl::InvalidArgumentError(text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return absl::FailedPreconditionError(text);
    default:
      return absl::UnavailableError(text);
  }
}

long Milliseconds(absl::Duration duration) {
  return duration == absl::InfiniteDuration()
             ? 0
             : static_cast<long>(std::max<int64_t>(absl::ToInt64Milliseconds(duration), 1));
}

void SetBody(CURL* handle, const Request& request) {
  if (request.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    return;
  }
  if (request.method == "PUT" || request.method == "POST" || !request.body.empty()) {
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
  }
  curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

// libcurl borrows the text: it must live until the call has ended.
void SetPem(CURL* handle, CURLoption option, const std::string& text) {
  if (text.empty()) return;
  curl_blob blob{const_cast<char*>(text.data()), text.size(), CURL_BLOB_NOCOPY};
  curl_easy_setopt(handle, option, &blob);
}

// Says where the call may lead.
void SetPlaces(CURL* handle, const Request& request) {
  const bool is_any = !request.only_https;
  const bool may_http = is_any || IsLoopbackUrl(request.url);
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, may_http ? "http,https" : "https");
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, is_any ? "http,https" : "https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, request.redirects_max > 0 ? 1L : 0L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, static_cast<long>(request.redirects_max));
}

void SetLimits(CURL* handle, const Request& request, Call& call) {
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(request.connect_timeout));
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, Milliseconds(request.timeout));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT,
                   static_cast<long>(request.stall_bytes_per_second));
  curl_easy_setopt(
      handle, CURLOPT_LOW_SPEED_TIME,
      static_cast<long>(absl::ToInt64Seconds(absl::Ceil(request.stall_timeout, absl::Seconds(1)))));
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, Progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &call);
}

}  // namespace

std::string HeaderOf(const Response& response, const std::string& name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "" : found->second;
}

Caller::~Caller() {
  for (void* handle : idle_) curl_easy_cleanup(static_cast<CURL*>(handle));
}

void* Caller::TakeHandle() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  {
    const MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      void* handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
  }
  return curl_easy_init();
}

void Caller::GiveBack(void* handle) {
  curl_easy_reset(static_cast<CURL*>(handle));  // connections stay
  {
    const MutexLock lock(&mutex_);
    if (idle_.size() < kIdleMax) {
      idle_.push_back(handle);
      return;
    }
  }
  curl_easy_cleanup(static_cast<CURL*>(handle));
}

absl::StatusOr<Response> Caller::Call(const Request& request) {
  if (request.is_stopping != nullptr && *request.is_stopping) {
    return absl::CancelledError("the call was cancelled");
  }
  auto* handle = static_cast<CURL*>(TakeHandle());
  if (handle == nullptr) return absl::ResourceExhaustedError("there is no memory for a call");
  struct Call call {
    request, {}, {}, false
  };
  curl_slist* lines = nullptr;
  for (const auto& [name, value] : request.headers) {
    lines = curl_slist_append(lines, value.empty() ? absl::StrCat(name, ";").c_str()
                                                   : absl::StrCat(name, ": ", value).c_str());
  }
  // Without an answer to it, libcurl would wait for a second before it sends the body.
  lines = curl_slist_append(lines, "Expect:");
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> owned(lines,
                                                                          curl_slist_free_all);
  char message[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, message);
  curl_easy_setopt(handle, CURLOPT_PRIVATE, &call);
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  SetPlaces(handle, request);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  // On a connection of HTTP/2 that has been idle, calls of an API server of Kubernetes were seen to
  // wait for ever. Nothing here sends several calls at a time over one connection.
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, lines);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "trainyard");
  if (!request.has_proxy) curl_easy_setopt(handle, CURLOPT_PROXY, "");
  if (!request.authorities_file.empty()) {
    curl_easy_setopt(handle, CURLOPT_CAINFO, request.authorities_file.c_str());
  }
  SetPem(handle, CURLOPT_CAINFO_BLOB, request.authorities);
  if (!request.authorities_file.empty() || !request.authorities.empty()) {
    // Debian's libcurl trusts a folder of authorities besides the file.
    curl_easy_setopt(handle, CURLOPT_CAPATH, nullptr);
  }
  SetPem(handle, CURLOPT_SSLCERT_BLOB, request.certificate);
  SetPem(handle, CURLOPT_SSLKEY_BLOB, request.key);
  if (request.why_forbidden) {
    curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
    curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, &call);
  }
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &call);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, handle);
  SetBody(handle, request);
  SetLimits(handle, request, call);
  const CURLcode code = curl_easy_perform(handle);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  GiveBack(handle);
  if (!call.status.ok()) return call.status;
  if (code != CURLE_OK && !call.is_cut) return StatusOf(code, message);
  if (status == 0) return absl::UnavailableError("the server gave no answer");
  call.response.status = static_cast<int>(status);
  return std::move(call.response);
}

}  // namespace trainyard::curl
