// Defines what the provisioner asks of a cluster of others.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/provision/core/inputs.h"

namespace trainyard::provision {

// The part of a provider that only its cluster understands.
struct ClusterOptions {
  std::vector<std::string> arguments = {};  // of the cluster's own program, word by word
  std::string folder = {};                  // for the tokens and logs of pilots
  std::string worker_program = {};          // on the nodes
  std::string server_address = {};          // under which nodes reach this server
  // These are for a Kubernetes.
  std::string pod = {};         // as JSON
  std::string space = {};       // the namespace of pilots
  std::string queue = {};       // of Kueue
  std::string kubeconfig = {};  // a file; empty for the cluster of this server's own pod
  std::string context = {};     // of that file

  friend bool operator==(const ClusterOptions&, const ClusterOptions&) = default;
};

// A cluster. Its calls wait for it; one thread makes them.
class Cluster {
 public:
  virtual ~Cluster() = default;
  // Asks the cluster whether it would accept a pilot, without asking for one. Returns
  // INVALID_ARGUMENT (INVALID_SPEC) or FAILED_PRECONDITION (PROVIDER_REFUSES).
  virtual absl::Status TryOut() const = 0;
  // Asks for a pilot. `tokens` has the join token of each of its workers, by node.
  virtual SubmitResult Submit(const std::string& pilot,
                              const std::vector<std::string>& tokens) const = 0;
  // Lists all that is ours. It looks harder for `foreign_ids`, which we know of.
  virtual Listing List(const std::vector<std::string>& foreign_ids) const = 0;
  // Returns true if a pilot that a list has shown lacks the tokens of its workers, because its
  // submission was interrupted. Such a pilot can only fail. Clusters that are given the tokens
  // before they are asked for the pilot have none.
  virtual absl::StatusOr<bool> LacksTokens(const std::string& pilot) const {
    (void)pilot;
    return false;
  }
  // Cancels an allocation. OK if it has ended already.
  virtual absl::Status Cancel(const std::string& foreign_id) const = 0;
  // Removes the tokens of a pilot, once it has connected or ended.
  virtual void DropTokens(const std::string& pilot) const = 0;
};

}  // namespace trainyard::provision
