// Pilots run as the user of the server, so they run the jobs of that user alone.
#include "server/provisioning.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/system_accounts.h"
#include "common/rpc/address.h"
#include "server/provision/slurm/slurm.h"
#include "server/rpc/invitation.h"

namespace trainyard {
namespace {

// A pilot may wait for days before it begins.
constexpr absl::Duration kTokenLifetime = absl::Hours(24 * 14);
constexpr size_t kServerIdLength = 8;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

// Returns the address under which other hosts reach the port.
absl::StatusOr<std::string> PublicAddress(const std::vector<std::string>& addresses) {
  if (addresses.empty()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "NO_TLS",
                     "pilots come from other hosts, and this server has no port for those; start "
                     "it with --listen tls:0.0.0.0:7070 beside its socket");
  }
  TY_ASSIGN_OR_RETURN(rpc::Address address, rpc::ParseAddress(addresses.front()));
  if (address.host == "0.0.0.0" || address.host == "::") address.host = HostName();
  return address.ToString();
}

}  // namespace

Provisioning::Provisioning(std::string state_dir, std::vector<std::string> environment,
                           rpc::SignIn& sign_in, store::AccessStore& tokens)
    : state_dir_(std::move(state_dir)),
      environment_(provision::slurm::CleanEnvironment(environment)),
      sign_in_(sign_in),
      tokens_(tokens) {}

absl::StatusOr<std::unique_ptr<Provisioning>> Provisioning::Open(
    const std::string& state_dir, std::vector<std::string> environment, runtime::Runtime& runtime,
    rpc::SignIn& sign_in, store::AccessStore& tokens) {
  std::unique_ptr<Provisioning> made(
      new Provisioning(state_dir, std::move(environment), sign_in, tokens));
  TY_ASSIGN_OR_RETURN(made->store_,
                      provision::ProviderStore::Open(JoinPath(state_dir, "providers.db")));
  provision::Keeper::Options options;
  options.server_id =
      absl::StrReplaceAll(MakeUuid(*Rng::Real()), {{"-", ""}}).substr(0, kServerIdLength);
  options.connect = [it = made.get()](const std::string& server_id,
                                      const provision::ProviderSpec& spec,
                                      const provision::ClusterOptions& cluster) {
    return it->Connect(server_id, spec, cluster);
  };
  options.invite = [it = made.get()](const std::string& worker) -> absl::StatusOr<std::string> {
    TY_ASSIGN_OR_RETURN(
        const access::NewToken token,
        rpc::Invite(it->sign_in_, it->tokens_, UserName(geteuid()), worker, kTokenLifetime));
    return token.text;
  };
  TY_ASSIGN_OR_RETURN(made->keeper_, provision::Keeper::Open(std::move(options), *made->store_,
                                                             runtime, *Clock::Real()));
  return made;
}

Provisioning::~Provisioning() {
  Stop();
}

void Provisioning::Stop() {
  is_stopping_ = true;
  if (keeper_ != nullptr) keeper_->Stop();
}

absl::Status Provisioning::Complete(provision::ProviderSpec& spec,
                                    provision::ClusterOptions& cluster) const {
  const std::string user = UserName(geteuid());
  if (spec.owner.empty()) spec.owner = user;
  if (spec.owner != user) {
    return InvalidFields({{"spec.owner", absl::StrCat("is '", spec.owner, "', and pilots run as '",
                                                      user, "', as this server does")}});
  }
  if (cluster.folder.empty()) cluster.folder = JoinPath(state_dir_, "pilots");
  if (cluster.worker_program.empty()) cluster.worker_program = SiblingProgram("trainyard-worker");
  TY_ASSIGN_OR_RETURN(const std::string address, PublicAddress(sign_in_.addresses));
  if (cluster.server_address.empty()) cluster.server_address = address;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<provision::Cluster>> Provisioning::Connect(
    const std::string& server_id, const provision::ProviderSpec& spec,
    const provision::ClusterOptions& options) const {
  if (!sign_in_.fingerprint) {
    return absl::FailedPreconditionError("this server has no port for other hosts");
  }
  TY_RETURN_IF_ERROR(MakeDirectories(options.folder, 0700));
  provision::slurm::SlurmOptions slurm;
  slurm.folder = options.folder;
  slurm.arguments = options.arguments;
  slurm.worker = {options.worker_program, "--server", options.server_address,
                  "--server_fingerprint", sign_in_.fingerprint()};
  if (spec.node.device_type == "cpu") {
    slurm.worker.insert(slurm.worker.end(),
                        {"--cpu_devices", absl::StrCat(spec.node.devices), "--nvml", ""});
  }
  return std::make_unique<provision::slurm::Slurm>(server_id, spec, std::move(slurm), environment_,
                                                   *Clock::Real(), is_stopping_);
}

}  // namespace trainyard
