// Says who a pod of a Kubernetes cluster is, once the cluster has vouched for its token.
#pragma once

#include <set>
#include <string>

#include "absl/time/time.h"

namespace trainyard::access {

// Says what a pod wants with its token. Each use has an audience of its own, so that a token for
// one is of no use for the other.
enum class PodUse { kClient, kWorker };

struct PodIdentity {
  std::string account;  // its service account, as NAMESPACE:NAME
  // The user for whom it speaks, for kClient.
  std::string user = {};
  // The names that its worker may have, for kWorker.
  std::set<std::string> workers = {};
  absl::Time expires;  // the end of the token

  friend bool operator==(const PodIdentity&, const PodIdentity&) = default;
};

}  // namespace trainyard::access
