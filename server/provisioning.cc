// Pilots of a Slurm run as the user of the server, so they run the jobs of that user alone. Pods
// have no accounts, and run those of everybody.
#include "server/provisioning.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/system_accounts.h"
#include "common/base/worker_name.h"
#include "common/kubernetes/api_client.h"
#include "common/rpc/address.h"
#include "server/provision/kubernetes/kubernetes.h"
#include "server/provision/slurm/slurm.h"
#include "server/rpc/invitation.h"

namespace trainyard {
namespace {

// A pilot may wait for days before it begins.
constexpr absl::Duration kTokenLifetime = absl::Hours(24 * 14);
constexpr size_t kServerIdLength = 8;
constexpr int64_t kSpaceFileBytesMax = 256;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

// Returns the first address under which other hosts reach the server.
absl::StatusOr<std::string> PublicAddress(const std::vector<std::string>& addresses) {
  for (const std::string& text : addresses) {
    TY_ASSIGN_OR_RETURN(rpc::Address address, rpc::ParseAddress(text));
    if (rpc::IsLoopbackHost(address.host)) continue;
    if (address.host == "0.0.0.0" || address.host == "::") address.host = HostName();
    return address.ToString();
  }
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "NO_TLS",
      absl::StrCat("pilots come from other hosts, and this server listens on ",
                   addresses.empty() ? "no port with TLS" : "loopback alone",
                   "; start it with --listen tls:0.0.0.0:7070 beside its socket",
                   // It may be reached all the same, as through a proxy.
                   addresses.empty() ? ""
                                     : ", or name the address under which they reach it with "
                                       "--server-address"));
}

// Checks an address that pilots are to call.
absl::Status CheckServerAddress(const char* field, const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const auto address = rpc::ParseAddress(text);
  if (!address.ok()) return InvalidFields({{field, std::string(address.status().message())}});
  if (address->kind == rpc::Address::Kind::kTls) return absl::OkStatus();
  return InvalidFields(
      {{field, absl::StrCat("'", text,
                            "' is no address with TLS, which other hosts need; expected "
                            "tls://HOST:PORT")}});
}

}  // namespace

Provisioning::Provisioning(std::string state_dir, std::vector<std::string> environment,
                           rpc::SignIn& sign_in, store::AccessStore& tokens,
                           const kubernetes::Options& pod)
    : state_dir_(std::move(state_dir)),
      environment_(provision::slurm::CleanEnvironment(environment)),
      sign_in_(sign_in),
      tokens_(tokens),
      pod_(pod) {}

absl::StatusOr<std::string> Provisioning::ReadServerId(const std::string& state_dir) {
  TY_ASSIGN_OR_RETURN(const auto store,
                      provision::ProviderStore::Open(JoinPath(state_dir, "providers.db")));
  return store->LoadServerId();
}

absl::StatusOr<std::unique_ptr<Provisioning>> Provisioning::Open(
    const std::string& state_dir, std::vector<std::string> environment, runtime::Runtime& runtime,
    rpc::SignIn& sign_in, store::AccessStore& tokens, const kubernetes::Options& pod) {
  std::unique_ptr<Provisioning> made(
      new Provisioning(state_dir, std::move(environment), sign_in, tokens, pod));
  TY_ASSIGN_OR_RETURN(made->store_,
                      provision::ProviderStore::Open(JoinPath(state_dir, "providers.db")));
  TY_ASSIGN_OR_RETURN(const provision::Kept before, made->store_->Load());
  provision::Kept kept = before;
  if (kept.state.server_id.empty()) {
    kept.state.server_id =
        absl::StrReplaceAll(MakeUuid(*Rng::Real()), {{"-", ""}}).substr(0, kServerIdLength);
    TY_RETURN_IF_ERROR(made->store_->Save(before, kept));
  }
  made->server_id_ = kept.state.server_id;
  provision::Keeper::Options options;
  options.server_id = made->server_id_;
  options.connect = [it = made.get()](const std::string& server_id,
                                      const provision::ProviderSpec& spec,
                                      const provision::ClusterOptions& cluster,
                                      const std::atomic<bool>& is_stopping) {
    return it->Connect(server_id, spec, cluster, is_stopping);
  };
  options.invite = [it = made.get()](const std::string& worker) -> absl::StatusOr<std::string> {
    TY_ASSIGN_OR_RETURN(const access::NewToken token,
                        rpc::InviteOfPilot(it->sign_in_, it->tokens_, worker, kTokenLifetime));
    return token.text;
  };
  options.revoke_but = [it = made.get()](const std::string& prefix,
                                         const std::set<std::string>& pilots) {
    rpc::RevokeInvitations(it->sign_in_, it->tokens_, [&](const std::string& worker) {
      return absl::StartsWith(worker, prefix) &&
             !pilots.contains(std::string(provision::PilotOfWorker(worker)));
    });
  };
  TY_ASSIGN_OR_RETURN(made->keeper_, provision::Keeper::Open(std::move(options), *made->store_,
                                                             runtime, *Clock::Real()));
  return made;
}

Provisioning::~Provisioning() {
  Stop();
}

void Provisioning::Stop() {
  if (keeper_ != nullptr) keeper_->Stop();
}

absl::Status Provisioning::Complete(provision::ProviderSpec& spec,
                                    provision::ClusterOptions& cluster) const {
  const bool is_slurm = spec.kind == provision::ProviderKind::kSlurm;
  TY_RETURN_IF_ERROR(is_slurm ? CompleteSlurm(spec, cluster) : CompleteKubernetes(cluster));
  TY_RETURN_IF_ERROR(
      CheckServerAddress(is_slurm ? "spec.slurm.server_address" : "spec.kubernetes.server_address",
                         cluster.server_address));
  if (!sign_in_.addresses.empty() && !cluster.server_address.empty()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(cluster.server_address, PublicAddress(sign_in_.addresses));
  return absl::OkStatus();
}

absl::Status Provisioning::CompleteSlurm(provision::ProviderSpec& spec,
                                         provision::ClusterOptions& cluster) const {
  const std::string user = UserName(geteuid());
  if (spec.owner.empty()) spec.owner = user;
  if (spec.owner != user) {
    return InvalidFields({{"spec.owner", absl::StrCat("is '", spec.owner, "', and pilots run as '",
                                                      user, "', as this server does")}});
  }
  if (cluster.folder.empty()) cluster.folder = JoinPath(state_dir_, "pilots");
  if (cluster.worker_program.empty()) cluster.worker_program = SiblingProgram("trainyard-worker");
  if (!absl::StartsWith(cluster.worker_program, "/")) {
    return InvalidFields({{"spec.slurm.worker_program",
                           absl::StrCat("'", cluster.worker_program,
                                        "' is no absolute path of a program on the nodes")}});
  }
  struct stat info {};
  if (stat(cluster.folder.c_str(), &info) == 0 && (info.st_mode & 022) != 0) {
    return InvalidFields(
        {{"spec.slurm.folder", absl::StrCat("'", cluster.folder,
                                            "' can be written by others, and pilots run what lies "
                                            "there; take the right from them (chmod go-w)")}});
  }
  return absl::OkStatus();
}

absl::StatusOr<provision::kubernetes::Kubeconfig> Provisioning::FindCluster(
    const provision::ClusterOptions& cluster) const {
  if (!cluster.kubeconfig.empty()) {
    return provision::kubernetes::ReadKubeconfig(cluster.kubeconfig, cluster.context);
  }
  if (pod_.api_url.empty()) {
    return absl::InvalidArgumentError(
        "this server is no pod of a cluster; name a kubeconfig file on the server's host");
  }
  const std::string& folder = pod_.access_folder;
  provision::kubernetes::Kubeconfig found;
  found.access = kubernetes::AccessOfPod(pod_.api_url, folder);
  if (!FileExists(found.access.token_file)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this server's pod has no token in ", folder,
        "; apply the components tokens and provider of deploy/kubernetes, or name a kubeconfig"));
  }
  found.space = ReadFile(JoinPath(folder, "namespace"), kSpaceFileBytesMax).value_or("");
  absl::StripAsciiWhitespace(&found.space);
  return found;
}

absl::Status Provisioning::CompleteKubernetes(provision::ClusterOptions& cluster) const {
  const auto found = FindCluster(cluster);
  if (!found.ok()) {
    return InvalidFields({{"spec.kubernetes.kubeconfig", std::string(found.status().message())}});
  }
  std::vector<FieldViolation> violations;
  if (cluster.space.empty()) cluster.space = found->space;
  // A context without a namespace means that one to kubectl. A server in a pod whose namespace is
  // not told could be anywhere.
  if (cluster.space.empty() && !cluster.kubeconfig.empty()) cluster.space = "default";
  for (const auto& [field, name] :
       {std::pair("namespace", &cluster.space), std::pair("queue", &cluster.queue)}) {
    if (IsWorkerName(*name) || (name == &cluster.queue && name->empty())) continue;
    violations.push_back(
        {absl::StrCat("spec.kubernetes.", field),
         name->empty()
             ? "is missing; say in which namespace the pods of pilots are"
             : absl::StrCat("'", *name,
                            "' is no name in Kubernetes; expected 1 to 63 of [a-z0-9-]")});
  }
  if (cluster.kubeconfig.empty() && cluster.server_address.empty()) {
    violations.push_back({"spec.kubernetes.server_address",
                          "is missing; name the Service of this server, such as "
                          "tls://trainyard-server.trainyard:7070, since no pod finds another by "
                          "its name"});
  }
  return violations.empty() ? absl::OkStatus() : InvalidFields(violations);
}

absl::StatusOr<std::unique_ptr<provision::Cluster>> Provisioning::Connect(
    const std::string& server_id, const provision::ProviderSpec& spec,
    const provision::ClusterOptions& options, const std::atomic<bool>& is_stopping) const {
  if (!sign_in_.fingerprint) {
    return absl::FailedPreconditionError("this server has no port for other hosts");
  }
  const std::vector<std::string> worker = {"--server", options.server_address,
                                           "--server_fingerprint", sign_in_.fingerprint()};
  if (spec.kind == provision::ProviderKind::kKubernetes) {
    TY_ASSIGN_OR_RETURN(provision::kubernetes::Kubeconfig found, FindCluster(options));
    provision::kubernetes::ManifestOptions manifest{options.pod, options.space, options.queue,
                                                    worker};
    return std::make_unique<provision::kubernetes::Kubernetes>(
        server_id, spec, std::move(manifest), std::move(found.access), *Clock::Real(), is_stopping);
  }
  TY_RETURN_IF_ERROR(MakeDirectories(options.folder, 0700));
  provision::slurm::SlurmOptions slurm;
  slurm.folder = options.folder;
  slurm.arguments = options.arguments;
  slurm.worker = {options.worker_program};
  slurm.worker.insert(slurm.worker.end(), worker.begin(), worker.end());
  if (spec.node.device_type == "cpu") {
    slurm.worker.insert(slurm.worker.end(),
                        {"--cpu_devices", absl::StrCat(spec.node.devices), "--nvml", ""});
  }
  return std::make_unique<provision::slurm::Slurm>(server_id, spec, std::move(slurm), environment_,
                                                   *Clock::Real(), is_stopping);
}

}  // namespace trainyard
