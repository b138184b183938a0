// Converts between the messages and the state of the provisioner.
#include "server/rpc/provider_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/provision/core/demand.h"
#include "server/provision/keeper.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

constexpr int kArgumentsMax = 64;
constexpr size_t kArgumentBytesMax = 1024;
constexpr size_t kPodBytesMax = size_t{128} << 10;

absl::Status NoProviders() {
  return absl::UnavailableError(
      "this server asks no clusters for workers, because it cannot read its record of them; its "
      "log says more");
}

v1::ProviderState StateOf(const provision::Provider& provider) {
  if (provider.is_removing) return v1::PROVIDER_STATE_REMOVING;
  if (provider.is_paused) return v1::PROVIDER_STATE_PAUSED;
  return provider.breaker.state == provision::Breaker::State::kClosed ? v1::PROVIDER_STATE_ACTIVE
                                                                      : v1::PROVIDER_STATE_FAILING;
}

void SetTime(int64_t us, google::protobuf::Timestamp* (*field)(v1::Pilot&), v1::Pilot& pilot) {
  if (us > 0) *field(pilot) = ToTimestamp(us);
}

v1::Pilot PilotProto(const provision::Pilot& pilot) {
  v1::Pilot proto;
  proto.set_name(pilot.name);
  proto.set_number(pilot.number);
  // The numbers of the states are those of the core, from 1.
  proto.set_state(static_cast<v1::PilotState>(static_cast<int>(pilot.state) + 1));
  proto.set_foreign_id(pilot.foreign_id);
  proto.set_foreign_reason(pilot.foreign_reason);
  proto.set_reason(pilot.reason);
  SetTime(
      pilot.create_us, [](v1::Pilot& p) { return p.mutable_create_time(); }, proto);
  SetTime(
      pilot.start_us, [](v1::Pilot& p) { return p.mutable_start_time(); }, proto);
  SetTime(
      pilot.connect_us, [](v1::Pilot& p) { return p.mutable_connect_time(); }, proto);
  SetTime(
      pilot.expire_us, [](v1::Pilot& p) { return p.mutable_expire_time(); }, proto);
  SetTime(
      pilot.end_us, [](v1::Pilot& p) { return p.mutable_end_time(); }, proto);
  return proto;
}

v1::ProviderSpec SpecProto(const provision::ProviderView& view) {
  const provision::ProviderSpec& spec = view.provider.spec;
  v1::ProviderSpec proto;
  proto.set_name(spec.name);
  proto.set_owner(spec.owner);
  proto.set_devices(spec.node.devices);
  proto.set_device_type(spec.node.device_type);
  proto.set_cpus(spec.node.cpus);
  proto.set_memory_bytes(spec.node.memory_bytes);
  proto.set_nodes(spec.nodes);
  *proto.mutable_time_limit() = ToDuration(spec.time_limit_us);
  proto.set_min_pilots(spec.min_pilots);
  proto.set_max_pilots(spec.max_pilots);
  proto.set_backlog(spec.backlog);
  *proto.mutable_idle_time() = ToDuration(spec.idle_us);
  proto.set_preference(spec.preference);
  proto.set_cost_per_hour(spec.cost_per_hour);
  proto.mutable_datasets()->Assign(spec.datasets.begin(), spec.datasets.end());
  if (spec.kind == provision::ProviderKind::kKubernetes) {
    v1::KubernetesCluster& kubernetes = *proto.mutable_kubernetes();
    kubernetes.set_pod(view.cluster.pod);
    kubernetes.set_namespace_(view.cluster.space);
    kubernetes.set_queue(view.cluster.queue);
    kubernetes.set_kubeconfig(view.cluster.kubeconfig);
    kubernetes.set_context(view.cluster.context);
    kubernetes.set_server_address(view.cluster.server_address);
    return proto;
  }
  v1::SlurmCluster& slurm = *proto.mutable_slurm();
  for (const std::string& argument : view.cluster.arguments) slurm.add_arguments(argument);
  slurm.set_folder(view.cluster.folder);
  slurm.set_worker_program(view.cluster.worker_program);
  slurm.set_server_address(view.cluster.server_address);
  return proto;
}

v1::Provider ProviderProto(const provision::ProviderView& view) {
  const provision::Provider& provider = view.provider;
  v1::Provider proto;
  *proto.mutable_spec() = SpecProto(view);
  proto.set_state(StateOf(provider));
  if (provider.is_paused) {
    proto.set_state_reason(provider.pause_reason);
  } else if (proto.state() == v1::PROVIDER_STATE_FAILING) {
    proto.set_state_reason(provider.breaker.reason);
    if (provider.breaker.until_us > 0) {
      *proto.mutable_retry_time() = ToTimestamp(provider.breaker.until_us);
    }
  }
  if (proto.state() == v1::PROVIDER_STATE_ACTIVE &&
      provider.unused_pilots >= provision::kUnusedPilotsMax) {
    proto.set_state_reason(absl::StrCat(
        provider.unused_pilots, " pilots in a row had no work, so the next one comes after a ",
        "pause; `trainyard explain JOB` says what a waiting job lacks"));
  }
  if (provider.listing_us > 0) *proto.mutable_list_time() = ToTimestamp(provider.listing_us);
  proto.set_list_failure(provider.listing_failure);
  for (auto pilot = provider.pilots.rbegin(); pilot != provider.pilots.rend(); ++pilot) {
    *proto.add_pilots() = PilotProto(pilot->second);
  }
  return proto;
}

provision::ProviderSpec SpecOf(const v1::ProviderSpec& proto) {
  provision::ProviderSpec spec;
  spec.name = proto.name();
  spec.owner = proto.owner();
  if (proto.has_kubernetes()) spec.kind = provision::ProviderKind::kKubernetes;
  spec.node.devices = proto.devices();
  if (!proto.device_type().empty()) spec.node.device_type = proto.device_type();
  spec.node.cpus = proto.cpus();
  spec.node.memory_bytes = proto.memory_bytes();
  spec.nodes = proto.nodes() == 0 ? 1 : proto.nodes();
  if (proto.has_time_limit()) spec.time_limit_us = codec::FromDuration(proto.time_limit());
  spec.min_pilots = proto.min_pilots();
  spec.max_pilots = proto.max_pilots() == 0 ? 1 : proto.max_pilots();
  spec.backlog = proto.backlog() == 0 ? 1 : proto.backlog();
  if (proto.has_idle_time()) spec.idle_us = codec::FromDuration(proto.idle_time());
  spec.preference = proto.preference();
  spec.cost_per_hour = proto.cost_per_hour();
  spec.datasets.assign(proto.datasets().begin(), proto.datasets().end());
  return spec;
}

provision::ClusterOptions ClusterOf(const v1::ProviderSpec& spec) {
  provision::ClusterOptions cluster;
  if (spec.has_kubernetes()) {
    const v1::KubernetesCluster& kubernetes = spec.kubernetes();
    cluster.server_address = kubernetes.server_address();
    cluster.pod = kubernetes.pod();
    cluster.space = kubernetes.namespace_();
    cluster.queue = kubernetes.queue();
    cluster.kubeconfig = kubernetes.kubeconfig();
    cluster.context = kubernetes.context();
    return cluster;
  }
  const v1::SlurmCluster& slurm = spec.slurm();
  cluster.arguments = {slurm.arguments().begin(), slurm.arguments().end()};
  cluster.folder = slurm.folder();
  cluster.worker_program = slurm.worker_program();
  cluster.server_address = slurm.server_address();
  return cluster;
}

// Checks that pilots that are there can still be found after a change.
absl::Status CheckSameCluster(const provision::ProviderView& known,
                              const provision::ProviderSpec& spec,
                              const provision::ClusterOptions& cluster) {
  std::vector<FieldViolation> changed;
  const auto compare = [&changed](const char* field, const auto& before, const auto& after) {
    if (before == after) return;
    changed.push_back({absl::StrCat("spec.", field),
                       "cannot change while the provider may have pilots; add another provider, "
                       "and remove this one"});
  };
  compare("cluster", known.provider.spec.kind, spec.kind);
  if (spec.kind == provision::ProviderKind::kKubernetes) {
    compare("kubernetes.namespace", known.cluster.space, cluster.space);
    compare("kubernetes.queue", known.cluster.queue, cluster.queue);
    compare("kubernetes.kubeconfig", known.cluster.kubeconfig, cluster.kubeconfig);
    compare("kubernetes.context", known.cluster.context, cluster.context);
  }
  return changed.empty() ? absl::OkStatus() : InvalidFields(changed);
}

// Checks what the core does not: it knows no messages.
void CheckSpec(const v1::ProviderSpec& spec, RequestCheck& check) {
  if (!spec.has_slurm() && !spec.has_kubernetes()) {
    check.Add("spec.slurm", "is missing; expected the cluster that is to be asked");
  }
  if (!spec.owner().empty() && !IsUserName(spec.owner())) {
    check.Add("spec.owner", "is no name of a user");
  }
  const v1::KubernetesCluster& kubernetes = spec.kubernetes();
  for (const auto& [field, text] :
       {std::pair("namespace", &kubernetes.namespace_()), std::pair("queue", &kubernetes.queue()),
        std::pair("kubeconfig", &kubernetes.kubeconfig()),
        std::pair("context", &kubernetes.context()),
        std::pair("server_address", &kubernetes.server_address())}) {
    check.MaxBytes(absl::StrCat("spec.kubernetes.", field), *text, kArgumentBytesMax);
  }
  check.MaxBytes("spec.kubernetes.pod", kubernetes.pod(), kPodBytesMax);
  check.MaxCount("spec.slurm.arguments", spec.slurm().arguments_size(), kArgumentsMax);
  for (const std::string& argument : spec.slurm().arguments()) {
    check.MaxBytes("spec.slurm.arguments", argument, kArgumentBytesMax);
  }
  check.MaxBytes("spec.slurm.folder", spec.slurm().folder(), kArgumentBytesMax);
  check.MaxBytes("spec.slurm.worker_program", spec.slurm().worker_program(), kArgumentBytesMax);
  check.MaxBytes("spec.slurm.server_address", spec.slurm().server_address(), kArgumentBytesMax);
}

}  // namespace

ProviderServiceImpl::ProviderServiceImpl(Services& services) : services_(services) {}

absl::Status ProviderServiceImpl::Set(const v1::ProviderSpec& proto, bool is_new,
                                      bool validate_only, v1::Provider& response) {
  provision::ProviderView view;
  provision::ProviderSpec& spec = view.provider.spec;
  spec = SpecOf(proto);
  view.cluster = ClusterOf(proto);
  TY_RETURN_IF_ERROR(services_.complete_provider(spec, view.cluster));
  if (!is_new) {
    TY_ASSIGN_OR_RETURN(const provision::ProviderView known, services_.providers->Find(spec.name));
    TY_RETURN_IF_ERROR(CheckSameCluster(known, spec, view.cluster));
  }
  TY_RETURN_IF_ERROR(services_.providers->TryOut(spec, view.cluster));
  if (!validate_only) {
    TY_RETURN_IF_ERROR(services_.providers->Set(spec, view.cluster, is_new));
    TY_ASSIGN_OR_RETURN(view, services_.providers->Find(spec.name));
  }
  response = ProviderProto(view);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ProviderServiceImpl::CreateProvider(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::CreateProviderRequest* request, v1::Provider* response) {
  if (services_.providers == nullptr) return Finished(context, NoProviders());
  RequestCheck check;
  CheckSpec(request->spec(), check);
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, request, response] {
    return Set(request->spec(), /*is_new=*/true, request->validate_only(), *response);
  });
}

grpc::ServerUnaryReactor* ProviderServiceImpl::UpdateProvider(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::UpdateProviderRequest* request, v1::Provider* response) {
  if (services_.providers == nullptr) return Finished(context, NoProviders());
  RequestCheck check;
  CheckSpec(request->spec(), check);
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, request, response] {
    return Set(request->spec(), /*is_new=*/false, /*validate_only=*/false, *response);
  });
}

grpc::ServerUnaryReactor* ProviderServiceImpl::GetProvider(const access::Caller&,
                                                           grpc::CallbackServerContext* context,
                                                           const v1::GetProviderRequest* request,
                                                           v1::Provider* response) {
  if (services_.providers == nullptr) return Finished(context, NoProviders());
  const auto view = services_.providers->Find(request->name());
  if (view.ok()) *response = ProviderProto(*view);
  return Finished(context, view.status());
}

grpc::ServerUnaryReactor* ProviderServiceImpl::ListProviders(const access::Caller&,
                                                             grpc::CallbackServerContext* context,
                                                             const v1::ListProvidersRequest*,
                                                             v1::ListProvidersResponse* response) {
  if (services_.providers == nullptr) return Finished(context, absl::OkStatus());
  for (const provision::ProviderView& view : services_.providers->List()) {
    *response->add_providers() = ProviderProto(view);
  }
  return Finished(context, absl::OkStatus());
}

absl::Status ProviderServiceImpl::Change(
    const std::string& name, const std::function<absl::Status(provision::State&)>& change,
    v1::Provider& response) {
  TY_RETURN_IF_ERROR(services_.providers->Change(change));
  TY_ASSIGN_OR_RETURN(const provision::ProviderView view, services_.providers->Find(name));
  response = ProviderProto(view);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ProviderServiceImpl::PauseProvider(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::PauseProviderRequest* request, v1::Provider* response) {
  if (services_.providers == nullptr) return Finished(context, NoProviders());
  RequestCheck check;
  check.MaxBytes("reason", request->reason(), kArgumentBytesMax);
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, user = caller.user, request, response] {
    const std::string reason =
        absl::StrCat("paused by ", user, request->reason().empty() ? "" : ": ", request->reason());
    return Change(
        request->name(),
        [&](provision::State& state) {
          return provision::PauseProvider(state, request->name(), reason);
        },
        *response);
  });
}

grpc::ServerUnaryReactor* ProviderServiceImpl::ResumeProvider(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::ResumeProviderRequest* request, v1::Provider* response) {
  if (services_.providers == nullptr) return Finished(context, NoProviders());
  return FinishAfter(context, changes_, [this, request, response] {
    return Change(
        request->name(),
        [&](provision::State& state) { return provision::ResumeProvider(state, request->name()); },
        *response);
  });
}

grpc::ServerUnaryReactor* ProviderServiceImpl::DeleteProvider(
    const access::Caller&, grpc::CallbackServerContext* context,
    const v1::DeleteProviderRequest* request, v1::DeleteProviderResponse*) {
  if (services_.providers == nullptr) return Finished(context, NoProviders());
  return FinishAfter(context, changes_, [this, request] {
    return services_.providers->Change([&](provision::State& state) {
      const auto remove = request->forget() ? provision::ForgetProvider : provision::RemoveProvider;
      return remove(state, request->name());
    });
  });
}

grpc::ServerUnaryReactor* ProviderServiceImpl::CancelPilot(const access::Caller& caller,
                                                           grpc::CallbackServerContext* context,
                                                           const v1::CancelPilotRequest* request,
                                                           v1::Provider* response) {
  if (services_.providers == nullptr) return Finished(context, NoProviders());
  return FinishAfter(context, changes_, [this, user = caller.user, request, response] {
    return Change(
        request->provider(),
        [&](provision::State& state) {
          return provision::CancelPilot(state, request->provider(), request->number(),
                                        absl::StrCat("cancelled by ", user));
        },
        *response);
  });
}

}  // namespace trainyard::rpc
