// Calls the API server of a Kubernetes cluster. This is the part that all its callers share: where
// it is, who calls, and how long a call may take. Bodies are texts here.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/curl/caller.h"

namespace trainyard::kubernetes {

// Kubernetes puts these files into pods: the token of the pod itself, and the authority that
// vouches for the API server.
inline constexpr char kAccessFolder[] = "/var/run/secrets/kubernetes.io/serviceaccount";

// Says where an API server is, and by what it knows us.
struct Access {
  std::string url;  // https://HOST:PORT
  // The authorities that vouch for it: a file or PEM text, or neither for those of the system.
  std::string authorities_file = {};
  std::string authorities = {};
  // A token or the file of one, which is read for each call, because Kubernetes renews it.
  std::string token_file = {};
  std::string token = {};
  // A certificate in place of a token, and its key, as PEM text.
  std::string certificate = {};
  std::string key = {};
};

// Returns the access that a pod has, by the files in `folder`.
Access AccessOfPod(std::string url, const std::string& folder);

// The client. It is thread-safe, and its calls block for a bounded time.
class ApiClient {
 public:
  struct Limits {
    absl::Duration timeout = absl::Seconds(5);  // of a call
    int64_t answer_bytes_max = int64_t{2} << 20;
  };

  // `is_stopping` is borrowed: calls end soon after it becomes true.
  ApiClient(Access access, Limits limits, const std::atomic<bool>& is_stopping);

  // Returns the answer whatever its status is. If the token is not accepted and its file has
  // another one meanwhile, the call is made again. Returns NOT_FOUND if there is no token, and
  // what Caller::Call returns.
  absl::StatusOr<curl::Response> Call(const std::string& method, const std::string& path,
                                      const std::string& body);

 private:
  absl::StatusOr<std::string> Token() const;

  const Access access_;
  const Limits limits_;
  const std::atomic<bool>& is_stopping_;
  curl::Caller caller_;
};

// Returns a text that can be a value in the query of a path.
std::string EscapeQuery(absl::string_view text);

}  // namespace trainyard::kubernetes
