// Asks the API server of the cluster in which the server runs as a pod.
#pragma once

#include <atomic>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/kubernetes/api_client.h"

namespace trainyard::kubernetes {

// Tells whose token it was.
struct ReviewedToken {
  std::string user;     // system:serviceaccount:SPACE:NAME, or another user of the cluster
  std::string pod;      // the name of the pod to which the token is bound, or empty
  std::string pod_uid;  // the same, by its unique id
  std::string node;     // the node of the pod; empty before Kubernetes 1.30

  friend bool operator==(const ReviewedToken&, const ReviewedToken&) = default;
};

// The API server. It is thread-safe, and its calls block for a bounded time.
class ApiServer {
 public:
  // A call ends after this.
  static constexpr absl::Duration kTimeout = absl::Seconds(5);

  // `folder` has the files `token` and `ca.crt`. Both are read for each call, because Kubernetes
  // renews them.
  ApiServer(std::string url, const std::string& folder, absl::Duration timeout = kTimeout);

  // Has the API server verify a token. Returns UNAUTHENTICATED if it does not vouch for it with
  // that audience, and another error, which says what to do about it, if it gives no answer.
  absl::StatusOr<ReviewedToken> ReviewToken(absl::string_view token, absl::string_view audience);
  // Returns the node of a pod, or "" if there is no such pod, or if the server may not know.
  absl::StatusOr<std::string> NodeOf(absl::string_view space, const ReviewedToken& pod);

  // Ends calls that are under way. Later ones fail.
  void Stop() { is_stopping_ = true; }

 private:
  absl::StatusOr<curl::Response> Call(const std::string& method, const std::string& path,
                                      const std::string& body);

  std::atomic<bool> is_stopping_ = false;
  ApiClient client_;
};

}  // namespace trainyard::kubernetes
