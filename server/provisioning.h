// Joins the provisioner with the rest of the server: where its workers find the server, and by
// which tokens they join.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "server/kubernetes/options.h"
#include "server/provision/keeper.h"
#include "server/provision/kubernetes/kubeconfig.h"
#include "server/provision/provider_store.h"
#include "server/rpc/sign_in.h"
#include "server/runtime/runtime.h"
#include "server/store/access_store.h"

namespace trainyard {

// All that the server has for providers. It borrows what it is given.
class Provisioning {
 public:
  // `environment` has the variables with which the programs of clusters are run, and `pod` says
  // how the API server is reached if this server runs in a pod.
  static absl::StatusOr<std::unique_ptr<Provisioning>> Open(
      const std::string& state_dir, std::vector<std::string> environment, runtime::Runtime& runtime,
      rpc::SignIn& sign_in, store::AccessStore& tokens, const kubernetes::Options& pod);
  ~Provisioning();

  void Start() { keeper_->Start(); }
  // It may be called again.
  void Stop();
  provision::Keeper& keeper() { return *keeper_; }
  // Returns the id that this server has for ever, also after a restore, and no other server has.
  const std::string& server_id() const { return server_id_; }
  // Returns it for a server whose providers cannot be read; empty if there is none yet.
  static absl::StatusOr<std::string> ReadServerId(const std::string& state_dir);

  // Fills in what a provider leaves open. Returns FAILED_PRECONDITION (NO_TLS) if workers of other
  // hosts cannot reach the server, and INVALID_ARGUMENT (INVALID_SPEC) for an owner whose jobs the
  // pilots could not run.
  absl::Status Complete(provision::ProviderSpec& spec, provision::ClusterOptions& cluster) const;

 private:
  Provisioning(std::string state_dir, std::vector<std::string> environment, rpc::SignIn& sign_in,
               store::AccessStore& tokens, const kubernetes::Options& pod);
  absl::Status CompleteSlurm(provision::ProviderSpec& spec,
                             provision::ClusterOptions& cluster) const;
  absl::Status CompleteKubernetes(provision::ClusterOptions& cluster) const;
  // Returns how the API server of a provider is reached, and the namespace that it goes with.
  absl::StatusOr<provision::kubernetes::Kubeconfig> FindCluster(
      const provision::ClusterOptions& cluster) const;
  absl::StatusOr<std::unique_ptr<provision::Cluster>> Connect(
      const std::string& server_id, const provision::ProviderSpec& spec,
      const provision::ClusterOptions& options, const std::atomic<bool>& is_stopping) const;

  const std::string state_dir_;
  const std::vector<std::string> environment_;
  rpc::SignIn& sign_in_;
  store::AccessStore& tokens_;
  const kubernetes::Options pod_;
  std::unique_ptr<provision::ProviderStore> store_;
  std::string server_id_;
  std::unique_ptr<provision::Keeper> keeper_;
};

}  // namespace trainyard
