// Starts the services, and lists their methods.
#include "tests/fuzz/service.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/fuzz/stream_call.h"

namespace trainyard::fuzz {
namespace {

// An array is a hundred thousand jobs for a few bytes, on purpose. Smaller ones take the same ways.
constexpr int32_t kArrayMax = 32;

// Changes a request so that the call ends by itself, and soon.
template <typename Request>
void Tame(Request& /*request*/) {}
void TameOptions(v1::SubmitOptions& options) {
  options.set_array_size(std::min(options.array_size(), kArrayMax));
}
void Tame(v1::CreateJobRequest& request) {
  if (request.has_options()) TameOptions(*request.mutable_options());
}
void Tame(v1::CloneJobRequest& request) {
  if (request.has_options()) TameOptions(*request.mutable_options());
}
void Tame(v1::ExplainJobRequest& request) {
  if (request.has_options()) TameOptions(*request.mutable_options());
}
void Tame(v1::CreateSweepRequest& request) {
  if (request.has_options()) TameOptions(*request.mutable_options());
  v1::SweepSpec& sweep = *request.mutable_spec()->mutable_sweep();
  sweep.set_trials(std::min(sweep.trials(), kArrayMax));
}
void Tame(v1::SyncWorkerRequest& request) {
  request.clear_max_wait();
}
void Tame(v1::TailLogsRequest& request) {
  request.set_follow(false);
}
void Tame(v1::WatchMetricsRequest& request) {
  request.set_follow(false);
}

// No request may bring out a failure of our own.
grpc::Status Checked(grpc::Status status) {
  const grpc::StatusCode code = status.error_code();
  TY_CHECK(code != grpc::StatusCode::INTERNAL && code != grpc::StatusCode::UNKNOWN);
  return status;
}

grpc::Status Unreadable() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "the bytes are no such message"};
}

template <typename Impl, typename Request, typename Response>
grpc::Status Call(Impl& impl, UnaryHandler<Impl, Request, Response> handler,
                  absl::string_view bytes) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Unreadable();
  Tame(request);
  Response response;
  return Checked(CallHandler(impl, handler, request, response));
}

template <typename Impl, typename Request, typename Response>
grpc::Status CallBytes(Impl& impl,
                       grpc::ServerWriteReactor<Response>* (Impl::*handler)(const access::Caller&,
                                                                            const Request*),
                       runtime::Executor& executor, absl::string_view bytes) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Unreadable();
  Tame(request);
  return Checked(CallStreamHandler(impl, handler, request, executor));
}

}  // namespace

// A cluster that accepts everything, and has nothing.
class EmptyCluster : public provision::Cluster {
 public:
  absl::Status TryOut() const override { return absl::OkStatus(); }
  provision::SubmitResult Submit(const std::string& pilot,
                                 const std::vector<std::string>&) const override {
    return {pilot, provision::SubmitResult::Kind::kUnknown, "", ""};
  }
  provision::Listing List(const std::vector<std::string>&) const override { return {}; }
  absl::Status Cancel(const std::string&) const override { return absl::OkStatus(); }
  void DropTokens(const std::string&) const override {}
};

testing::TempDir& Service::Folder() {
  static auto* folder = new testing::TempDir;
  return *folder;
}

Service::Service() : logs_(Folder().File("state/logs")) {
  TY_CHECK_OK(RemoveTree(Folder().File("state")));
  TY_CHECK_OK(MakeDirectories(Folder().File("state")));
  blobs_ = *runtime::BlobStore::Open(Folder().File("state"));
  const std::string state = Folder().File("state");
  code_ = *runtime::CodeStore::Open(state, clock_);
  secret_store_ = *store::SecretStore::Open(state);
  target_store_ = *store::NotifyStore::Open(JoinPath(state, "notify.db"));
  spec_store_ = *store::SpecStore::Open(JoinPath(state, "specs.db"));
  remark_store_ = *store::RemarkStore::Open(JoinPath(state, "remarks.db"));
  provider_store_ = *provision::ProviderStore::Open(JoinPath(state, "providers.db"));
  sweep_store_ = *store::SweepStore::Open(JoinPath(state, "sweeps.db"));
  Start();
}

Service::~Service() {
  Stop();
}

void Service::Start() {
  board_ = std::make_unique<runtime::Board>(notifier_);
  executor_ = std::make_unique<runtime::Executor>(2);
  streams_ = std::make_unique<rpc::Streams>();
  runtime::Runtime::Options options;
  options.on_fatal = [](const absl::Status& status) { TY_CHECK_OK(status); };
  runtime_ = *runtime::Runtime::Start(std::move(options), store_, clock_, *board_);
  verifier_ =
      std::make_unique<runtime::CheckpointVerifier>(*blobs_, *board_, *executor_, *runtime_);
  audit_ = std::make_unique<runtime::AuditLog>(access_store_, clock_, absl::InfiniteDuration());
  services_ = std::make_unique<rpc::Services>(
      rpc::Services{*runtime_, *board_, notifier_, *executor_, *executor_, *executor_, logs_,
                    *blobs_, *code_, *verifier_, metrics_, store_, *streams_, rng_, connections_,
                    directory_, access_store_, *audit_, "1.2.3"});
  services_->sign_in->user_of_system = [](const std::string& user) {
    access::Peer peer;
    peer.user = user;
    peer.role = access::Role::kSubmitter;
    return peer;
  };
  // Neither of the two is started: nothing is sent, and no trial begins by itself.
  courier_ = std::make_unique<notify::Courier>(notify::Courier::Options{}, *target_store_, store_,
                                               *board_, clock_);
  sweeps::Keeper::Options keeper;
  keeper.submit = [this](const store::SweepRecord& sweep, const sweeps::NewJob& job) {
    return rpc::SubmissionOfTrial(sweep, job, *services_);
  };
  keeper_ = *sweeps::Keeper::Open(std::move(keeper), *sweep_store_, *runtime_, *board_, notifier_,
                                  metrics_, clock_);
  provision::Keeper::Options provisioner;
  provisioner.server_id = "fuzz";
  provisioner.connect = [](const std::string&, const provision::ProviderSpec&,
                           const provision::ClusterOptions&,
                           const std::atomic<bool>&) { return std::make_unique<EmptyCluster>(); };
  providers_keeper_ =
      *provision::Keeper::Open(std::move(provisioner), *provider_store_, *runtime_, clock_);
  services_->providers = providers_keeper_.get();
  services_->complete_provider = [](provision::ProviderSpec& spec, provision::ClusterOptions&) {
    if (spec.owner.empty()) spec.owner = Admin().user;
    return absl::OkStatus();
  };
  services_->secrets = secret_store_.get();
  services_->targets = target_store_.get();
  services_->courier = courier_.get();
  services_->specs = spec_store_.get();
  services_->remarks = remark_store_.get();
  services_->sweeps = keeper_.get();
  jobs_ = std::make_unique<rpc::JobServiceImpl>(*services_);
  fleet_ = std::make_unique<rpc::FleetServiceImpl>(*services_);
  sharing_ = std::make_unique<rpc::SharingServiceImpl>(*services_);
  checkpoints_ = std::make_unique<rpc::CheckpointServiceImpl>(*services_);
  code_service_ = std::make_unique<rpc::CodeServiceImpl>(*services_);
  bundles_ = std::make_unique<rpc::BundleServiceImpl>(*services_);
  agents_ = std::make_unique<rpc::AgentServiceImpl>(*services_);
  access_ = std::make_unique<rpc::AccessServiceImpl>(*services_);
  specs_ = std::make_unique<rpc::SpecServiceImpl>(*services_);
  sweeps_ = std::make_unique<rpc::SweepServiceImpl>(*services_);
  secrets_ = std::make_unique<rpc::SecretServiceImpl>(*services_);
  notify_ = std::make_unique<rpc::NotifyServiceImpl>(*services_);
  providers_ = std::make_unique<rpc::ProviderServiceImpl>(*services_);
}

void Service::Stop() {
  streams_->EndAll(absl::UnavailableError("the server is shutting down; try again"));
  verifier_->Stop();
  runtime_->Stop();
  executor_.reset();  // runs what is left
  providers_.reset();
  notify_.reset();
  secrets_.reset();
  sweeps_.reset();
  specs_.reset();
  access_.reset();
  agents_.reset();
  bundles_.reset();
  checkpoints_.reset();
  code_service_.reset();
  sharing_.reset();
  fleet_.reset();
  jobs_.reset();
  providers_keeper_.reset();
  keeper_.reset();
  courier_.reset();
  services_.reset();
  audit_.reset();
  verifier_.reset();
  runtime_.reset();
  streams_.reset();
  board_.reset();
}

void Service::Restart() {
  Stop();
  Start();
}

const std::vector<Service::Method>& Service::UnaryMethods() {
  using Jobs = rpc::JobServiceImpl;
  using Fleet = rpc::FleetServiceImpl;
  using Sharing = rpc::SharingServiceImpl;
  using Checkpoints = rpc::CheckpointServiceImpl;
  using Agents = rpc::AgentServiceImpl;
  using Access = rpc::AccessServiceImpl;
  using Code = rpc::CodeServiceImpl;
  using Bundles = rpc::BundleServiceImpl;
  using Specs = rpc::SpecServiceImpl;
  using Sweeps = rpc::SweepServiceImpl;
  using Secrets = rpc::SecretServiceImpl;
  using Notify = rpc::NotifyServiceImpl;
  using Providers = rpc::ProviderServiceImpl;
  static const auto* methods = new std::vector<Method>{
      {"JobService/CreateJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::CreateJob, request);
       }},
      {"JobService/ExplainJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::ExplainJob, request);
       }},
      {"JobService/GetJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::GetJob, request);
       }},
      {"JobService/ListJobs",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::ListJobs, request);
       }},
      {"JobService/ListQueue",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::ListQueue, request);
       }},
      {"JobService/CancelJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::CancelJob, request);
       }},
      {"JobService/CancelJobs",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::CancelJobs, request);
       }},
      {"JobService/SuspendJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::SuspendJob, request);
       }},
      {"JobService/ResumeJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::ResumeJob, request);
       }},
      {"JobService/DeleteJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::DeleteJob, request);
       }},
      {"JobService/CloneJob",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::CloneJob, request);
       }},
      {"JobService/DiffJobs",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::DiffJobs, request);
       }},
      {"JobService/ListAttempts",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::ListAttempts, request);
       }},
      {"JobService/ListEvents",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::ListEvents, request);
       }},
      {"JobService/QueryMetrics",
       [](Service& s, absl::string_view request) {
         return Call(*s.jobs_, &Jobs::QueryMetrics, request);
       }},
      {"FleetService/ListWorkers",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::ListWorkers, request);
       }},
      {"FleetService/GetWorker",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::GetWorker, request);
       }},
      {"FleetService/CordonWorker",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::CordonWorker, request);
       }},
      {"FleetService/UncordonWorker",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::UncordonWorker, request);
       }},
      {"FleetService/DrainWorker",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::DrainWorker, request);
       }},
      {"FleetService/DeclareWorkerLost",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::DeclareWorkerLost, request);
       }},
      {"FleetService/QuarantineDevice",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::QuarantineDevice, request);
       }},
      {"FleetService/ReleaseDevice",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::ReleaseDevice, request);
       }},
      {"FleetService/DeleteWorker",
       [](Service& s, absl::string_view request) {
         return Call(*s.fleet_, &Fleet::DeleteWorker, request);
       }},
      {"SharingService/SetQuota",
       [](Service& s, absl::string_view request) {
         return Call(*s.sharing_, &Sharing::SetQuota, request);
       }},
      {"SharingService/ListQuotas",
       [](Service& s, absl::string_view request) {
         return Call(*s.sharing_, &Sharing::ListQuotas, request);
       }},
      {"SharingService/DeleteQuota",
       [](Service& s, absl::string_view request) {
         return Call(*s.sharing_, &Sharing::DeleteQuota, request);
       }},
      {"SharingService/CreateReservation",
       [](Service& s, absl::string_view request) {
         return Call(*s.sharing_, &Sharing::CreateReservation, request);
       }},
      {"SharingService/ListReservations",
       [](Service& s, absl::string_view request) {
         return Call(*s.sharing_, &Sharing::ListReservations, request);
       }},
      {"SharingService/DeleteReservation",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.sharing_, &Sharing::DeleteReservation, request); }},
      {"SharingService/ListShares",
       [](Service& s,
          absl::string_view request) { return Call(*s.sharing_, &Sharing::ListShares, request); }},
      {"CheckpointService/ListCheckpoints",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.checkpoints_, &Checkpoints::ListCheckpoints, request); }},
      {"CheckpointService/GetCheckpoint",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.checkpoints_, &Checkpoints::GetCheckpoint, request); }},
      {"CheckpointService/VerifyCheckpoint",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.checkpoints_, &Checkpoints::VerifyCheckpoint, request); }},
      {"CheckpointService/GetOutputs",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.checkpoints_, &Checkpoints::GetOutputs, request); }},
      {"AgentService/RegisterWorker",
       [](Service& s, absl::string_view
                          request) { return Call(*s.agents_, &Agents::RegisterWorker, request); }},
      {"AgentService/SyncWorker",
       [](Service& s,
          absl::string_view request) { return Call(*s.agents_, &Agents::SyncWorker, request); }},
      {"AgentService/AppendLog",
       [](Service& s,
          absl::string_view request) { return Call(*s.agents_, &Agents::AppendLog, request); }},
      {"AgentService/AppendMetrics",
       [](Service& s,
          absl::string_view request) { return Call(*s.agents_, &Agents::AppendMetrics, request); }},
      {"AgentService/AppendCheckpointFile",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.agents_, &Agents::AppendCheckpointFile, request); }},
      {"AgentService/CommitCheckpoint",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.agents_, &Agents::CommitCheckpoint, request); }},
      {"AgentService/VerifyCheckpoint",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.agents_, &Agents::VerifyCheckpoint, request); }},
      {"AccessService/WhoAmI",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::WhoAmI, request); }},
      {"AccessService/ListUsers",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::ListUsers, request); }},
      {"AccessService/SetUser",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::SetUser, request); }},
      {"AccessService/DeleteUser",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::DeleteUser, request); }},
      {"AccessService/ListProjects",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::ListProjects, request); }},
      {"AccessService/SetProject",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::SetProject, request); }},
      {"AccessService/DeleteProject",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::DeleteProject, request); }},
      {"AccessService/RevokeCertificate",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.access_, &Access::RevokeCertificate, request); }},
      {"AccessService/ListAuditEntries",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.access_, &Access::ListAuditEntries, request); }},
      {"AgentService/FetchSecrets",
       [](Service& s,
          absl::string_view request) { return Call(*s.agents_, &Agents::FetchSecrets, request); }},
      {"CodeService/FindCode",
       [](Service& s,
          absl::string_view request) { return Call(*s.code_service_, &Code::FindCode, request); }},
      {"CodeService/UploadCode",
       [](Service& s, absl::string_view
                          request) { return Call(*s.code_service_, &Code::UploadCode, request); }},
      {"BundleService/ImportJob",
       [](Service& s,
          absl::string_view request) { return Call(*s.bundles_, &Bundles::ImportJob, request); }},
      {"BundleService/AppendImportedMetrics",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.bundles_, &Bundles::AppendImportedMetrics, request); }},
      {"BundleService/AppendImportedFile",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.bundles_, &Bundles::AppendImportedFile, request); }},
      {"BundleService/CommitImportedCheckpoint",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.bundles_, &Bundles::CommitImportedCheckpoint, request); }},
      {"BundleService/ImportCheckpoint",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.bundles_, &Bundles::ImportCheckpoint, request); }},
      {"JobService/DeleteJobData",
       [](Service& s,
          absl::string_view request) { return Call(*s.jobs_, &Jobs::DeleteJobData, request); }},
      {"JobService/AnnotateJob",
       [](Service& s,
          absl::string_view request) { return Call(*s.jobs_, &Jobs::AnnotateJob, request); }},
      {"JobService/ListVerifications",
       [](Service& s,
          absl::string_view request) { return Call(*s.jobs_, &Jobs::ListVerifications, request); }},
      {"JobService/GetLineage",
       [](Service& s,
          absl::string_view request) { return Call(*s.jobs_, &Jobs::GetLineage, request); }},
      {"SharingService/ListUsage",
       [](Service& s,
          absl::string_view request) { return Call(*s.sharing_, &Sharing::ListUsage, request); }},
      {"AccessService/CreateToken",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::CreateToken, request); }},
      {"AccessService/ListTokens",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::ListTokens, request); }},
      {"AccessService/RevokeToken",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::RevokeToken, request); }},
      {"AccessService/InviteWorker",
       [](Service& s,
          absl::string_view request) { return Call(*s.access_, &Access::InviteWorker, request); }},
      {"AgentService/JoinWorker",
       [](Service& s,
          absl::string_view request) { return Call(*s.agents_, &Agents::JoinWorker, request); }},
      {"AgentService/RenewCertificate",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.agents_, &Agents::RenewCertificate, request); }},
      {"SpecService/SaveSpec",
       [](Service& s,
          absl::string_view request) { return Call(*s.specs_, &Specs::SaveSpec, request); }},
      {"SpecService/GetSavedSpec",
       [](Service& s,
          absl::string_view request) { return Call(*s.specs_, &Specs::GetSavedSpec, request); }},
      {"SpecService/ListSavedSpecs",
       [](Service& s,
          absl::string_view request) { return Call(*s.specs_, &Specs::ListSavedSpecs, request); }},
      {"SpecService/DeleteSavedSpec",
       [](Service& s,
          absl::string_view request) { return Call(*s.specs_, &Specs::DeleteSavedSpec, request); }},
      {"SweepService/CreateSweep",
       [](Service& s,
          absl::string_view request) { return Call(*s.sweeps_, &Sweeps::CreateSweep, request); }},
      {"SweepService/GetSweep",
       [](Service& s,
          absl::string_view request) { return Call(*s.sweeps_, &Sweeps::GetSweep, request); }},
      {"SweepService/ListSweeps",
       [](Service& s,
          absl::string_view request) { return Call(*s.sweeps_, &Sweeps::ListSweeps, request); }},
      {"SweepService/StopSweep",
       [](Service& s,
          absl::string_view request) { return Call(*s.sweeps_, &Sweeps::StopSweep, request); }},
      {"SweepService/ResumeSweep",
       [](Service& s,
          absl::string_view request) { return Call(*s.sweeps_, &Sweeps::ResumeSweep, request); }},
      {"SweepService/DeleteSweep",
       [](Service& s,
          absl::string_view request) { return Call(*s.sweeps_, &Sweeps::DeleteSweep, request); }},
      {"SecretService/SetSecret",
       [](Service& s,
          absl::string_view request) { return Call(*s.secrets_, &Secrets::SetSecret, request); }},
      {"SecretService/ListSecrets",
       [](Service& s,
          absl::string_view request) { return Call(*s.secrets_, &Secrets::ListSecrets, request); }},
      {"SecretService/DeleteSecret",
       [](Service& s, absl::string_view
                          request) { return Call(*s.secrets_, &Secrets::DeleteSecret, request); }},
      {"NotifyService/AddTarget",
       [](Service& s,
          absl::string_view request) { return Call(*s.notify_, &Notify::AddTarget, request); }},
      {"NotifyService/ListTargets",
       [](Service& s,
          absl::string_view request) { return Call(*s.notify_, &Notify::ListTargets, request); }},
      {"NotifyService/DeleteTarget",
       [](Service& s,
          absl::string_view request) { return Call(*s.notify_, &Notify::DeleteTarget, request); }},
      {"NotifyService/ListDeliveries",
       [](Service& s, absl::string_view
                          request) { return Call(*s.notify_, &Notify::ListDeliveries, request); }},
      {"ProviderService/CreateProvider",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::CreateProvider, request); }},
      {"ProviderService/UpdateProvider",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::UpdateProvider, request); }},
      {"ProviderService/GetProvider",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::GetProvider, request); }},
      {"ProviderService/ListProviders",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::ListProviders, request); }},
      {"ProviderService/PauseProvider",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::PauseProvider, request); }},
      {"ProviderService/ResumeProvider",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::ResumeProvider, request); }},
      {"ProviderService/DeleteProvider",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::DeleteProvider, request); }},
      {"ProviderService/CancelPilot",
       [](Service& s,
          absl::string_view
              request) { return Call(*s.providers_, &Providers::CancelPilot, request); }},
  };
  return *methods;
}

grpc::Status Service::CallUnary(size_t number, absl::string_view request) {
  const std::vector<Method>& methods = UnaryMethods();
  return methods[number % methods.size()].call(*this, request);
}

grpc::Status Service::CallStream(size_t number, absl::string_view request) {
  switch (number % 8) {
    case 0:
      return CallBytes(*jobs_, &rpc::JobServiceImpl::WatchJobs, *executor_, request);
    case 1:
      return CallBytes(*jobs_, &rpc::JobServiceImpl::TailLogs, *executor_, request);
    case 2:
      return CallBytes(*jobs_, &rpc::JobServiceImpl::WatchMetrics, *executor_, request);
    case 3:
      return CallBytes(*checkpoints_, &rpc::CheckpointServiceImpl::DownloadCheckpoint, *executor_,
                       request);
    case 4:
      return CallBytes(*checkpoints_, &rpc::CheckpointServiceImpl::DownloadOutput, *executor_,
                       request);
    case 5:
      return CallBytes(*code_service_, &rpc::CodeServiceImpl::DownloadCode, *executor_, request);
    case 6:
      return CallBytes(*agents_, &rpc::AgentServiceImpl::FetchCode, *executor_, request);
    default:
      return CallBytes(*agents_, &rpc::AgentServiceImpl::FetchCheckpoint, *executor_, request);
  }
}

core::Snapshot Service::Snapshot() {
  core::Snapshot snapshot;
  absl::Notification done;
  runtime_->Read([&](absl::StatusOr<const core::Yard*> yard) {
    TY_CHECK_OK(yard.status());
    snapshot = (*yard)->snapshot();
    done.Notify();
  });
  TY_CHECK(done.WaitForNotificationWithTimeout(kCallMax));
  return snapshot;
}

v1::JobSpec Service::Spec(const std::string& name) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(2);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  return spec;
}

std::string Service::Register() {
  v1::RegisterWorkerRequest request;
  request.set_worker("lab-1");
  request.set_uid("u-1");
  request.set_version("1.0");
  for (const int number : {0, 1}) {
    v1::Device* device = request.add_devices();
    device->set_name(absl::StrCat("cpu-", number));
    device->set_type("cpu");
    device->set_health(v1::DEVICE_HEALTH_OK);
  }
  v1::RegisterWorkerResponse response;
  (void)CallHandler(*agents_, &rpc::AgentServiceImpl::RegisterWorker, request, response);
  return response.session();
}

}  // namespace trainyard::fuzz
