// Calls HTTP servers with libcurl. What a call sends and what comes back is in memory, except for
// the body of a success, which may go to a sink as it comes.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace trainyard::curl {

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // by name in lower case
  std::string body;                            // empty if a sink took it
};

// Returns the value of a header, whose name is in lower case, or "".
std::string HeaderOf(const Response& response, const std::string& name);

struct Request {
  std::string method = "GET";
  std::string url;  // http or https; its path is sent as it is
  std::vector<std::pair<std::string, std::string>> headers;
  absl::string_view body;  // borrowed until the call returns
  absl::Duration connect_timeout = absl::Seconds(10);
  // A call that moves no byte for so long has failed. It is rounded up to whole seconds.
  absl::Duration stall_timeout = absl::Seconds(60);
  int64_t stall_bytes_per_second = 1;  // fewer count as none
  // The whole call; infinite if it may take as long as bytes come.
  absl::Duration timeout = absl::InfiniteDuration();
  // So many redirects are followed. The answer is the last one.
  int redirects_max = 0;
  // Only https is called, or http of this host itself, and no redirect leads to another kind of
  // address than https.
  bool only_https = false;
  // A longer body than this is refused, unless a sink takes it.
  int64_t body_bytes_max = int64_t{1} << 20;
  // If true, a longer body is cut at the limit, and the call succeeds with its beginning.
  bool cuts_body = false;
  // Takes the body of an answer 2xx, piece by piece. `response` has the status and all headers. The
  // call ends with its status once that is not OK.
  std::function<absl::Status(const Response& response, absl::string_view piece)> sink;
  // Returns why no connection is made to an address, or "". A name may resolve to another address
  // each time, so this is asked for every socket.
  std::function<std::string(const sockaddr& address)> why_forbidden;
  // Lets the variables of the environment name a proxy (https_proxy, no_proxy).
  bool has_proxy = false;
  // A file with the certificates of authorities in place of those of the system, or "".
  std::string authorities_file;
  // Those certificates themselves as PEM text, or "".
  std::string authorities;
  // The certificate that we show, and its key, as PEM text, or "".
  std::string certificate = {};
  std::string key = {};
  // The call ends soon after this becomes true; borrowed, and may be null.
  const std::atomic<bool>* is_stopping = nullptr;
};

// Keeps connections open between calls. It is thread-safe: calls run side by side, each on a
// connection of its own.
class Caller {
 public:
  Caller() = default;
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Returns the answer whatever its status is. Returns UNAVAILABLE if
  // there is no whole answer and a later call may have one, DEADLINE_EXCEEDED after the timeouts,
  // CANCELLED, PERMISSION_DENIED for a forbidden address, FAILED_PRECONDITION if the certificate
  // of the server does not hold, RESOURCE_EXHAUSTED if the answer is too long, and INVALID_ARGUMENT
  // for what is no URL. Messages do not contain the URL, which may hold a secret.
  absl::StatusOr<Response> Call(const Request& request);

 private:
  void* TakeHandle();
  void GiveBack(void* handle);

  Mutex mutex_;
  std::vector<void*> idle_ ABSL_GUARDED_BY(mutex_);  // each of them is a CURL*
};

}  // namespace trainyard::curl
