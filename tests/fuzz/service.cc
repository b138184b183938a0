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

testing::TempDir& Service::Folder() {
  static auto* folder = new testing::TempDir;
  return *folder;
}

Service::Service() : logs_(Folder().File("state/logs")) {
  TY_CHECK_OK(RemoveTree(Folder().File("state")));
  TY_CHECK_OK(MakeDirectories(Folder().File("state")));
  blobs_ = *runtime::BlobStore::Open(Folder().File("state"));
  code_ = *runtime::CodeStore::Open(Folder().File("state"), clock_);
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
  jobs_ = std::make_unique<rpc::JobServiceImpl>(*services_);
  fleet_ = std::make_unique<rpc::FleetServiceImpl>(*services_);
  sharing_ = std::make_unique<rpc::SharingServiceImpl>(*services_);
  checkpoints_ = std::make_unique<rpc::CheckpointServiceImpl>(*services_);
  code_service_ = std::make_unique<rpc::CodeServiceImpl>(*services_);
  bundles_ = std::make_unique<rpc::BundleServiceImpl>(*services_);
  agents_ = std::make_unique<rpc::AgentServiceImpl>(*services_);
  access_ = std::make_unique<rpc::AccessServiceImpl>(*services_);
}

void Service::Stop() {
  streams_->EndAll(absl::UnavailableError("the server is shutting down; try again"));
  verifier_->Stop();
  runtime_->Stop();
  executor_.reset();  // runs what is left
  access_.reset();
  agents_.reset();
  bundles_.reset();
  checkpoints_.reset();
  code_service_.reset();
  sharing_.reset();
  fleet_.reset();
  jobs_.reset();
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

grpc::Status Service::CallUnary(size_t number, absl::string_view request) {
  using Jobs = rpc::JobServiceImpl;
  using Fleet = rpc::FleetServiceImpl;
  using Sharing = rpc::SharingServiceImpl;
  using Checkpoints = rpc::CheckpointServiceImpl;
  using Agents = rpc::AgentServiceImpl;
  using Access = rpc::AccessServiceImpl;
  using Code = rpc::CodeServiceImpl;
  using Bundles = rpc::BundleServiceImpl;
  const std::function<grpc::Status()> calls[] = {
      [&] { return Call(*jobs_, &Jobs::CreateJob, request); },
      [&] { return Call(*jobs_, &Jobs::ExplainJob, request); },
      [&] { return Call(*jobs_, &Jobs::GetJob, request); },
      [&] { return Call(*jobs_, &Jobs::ListJobs, request); },
      [&] { return Call(*jobs_, &Jobs::ListQueue, request); },
      [&] { return Call(*jobs_, &Jobs::CancelJob, request); },
      [&] { return Call(*jobs_, &Jobs::CancelJobs, request); },
      [&] { return Call(*jobs_, &Jobs::SuspendJob, request); },
      [&] { return Call(*jobs_, &Jobs::ResumeJob, request); },
      [&] { return Call(*jobs_, &Jobs::DeleteJob, request); },
      [&] { return Call(*jobs_, &Jobs::CloneJob, request); },
      [&] { return Call(*jobs_, &Jobs::DiffJobs, request); },
      [&] { return Call(*jobs_, &Jobs::ListAttempts, request); },
      [&] { return Call(*jobs_, &Jobs::ListEvents, request); },
      [&] { return Call(*jobs_, &Jobs::QueryMetrics, request); },
      [&] { return Call(*fleet_, &Fleet::ListWorkers, request); },
      [&] { return Call(*fleet_, &Fleet::GetWorker, request); },
      [&] { return Call(*fleet_, &Fleet::CordonWorker, request); },
      [&] { return Call(*fleet_, &Fleet::UncordonWorker, request); },
      [&] { return Call(*fleet_, &Fleet::DrainWorker, request); },
      [&] { return Call(*fleet_, &Fleet::DeclareWorkerLost, request); },
      [&] { return Call(*fleet_, &Fleet::QuarantineDevice, request); },
      [&] { return Call(*fleet_, &Fleet::ReleaseDevice, request); },
      [&] { return Call(*fleet_, &Fleet::DeleteWorker, request); },
      [&] { return Call(*sharing_, &Sharing::SetQuota, request); },
      [&] { return Call(*sharing_, &Sharing::ListQuotas, request); },
      [&] { return Call(*sharing_, &Sharing::DeleteQuota, request); },
      [&] { return Call(*sharing_, &Sharing::CreateReservation, request); },
      [&] { return Call(*sharing_, &Sharing::ListReservations, request); },
      [&] { return Call(*sharing_, &Sharing::DeleteReservation, request); },
      [&] { return Call(*sharing_, &Sharing::ListShares, request); },
      [&] { return Call(*checkpoints_, &Checkpoints::ListCheckpoints, request); },
      [&] { return Call(*checkpoints_, &Checkpoints::GetCheckpoint, request); },
      [&] { return Call(*checkpoints_, &Checkpoints::VerifyCheckpoint, request); },
      [&] { return Call(*checkpoints_, &Checkpoints::GetOutputs, request); },
      [&] { return Call(*agents_, &Agents::RegisterWorker, request); },
      [&] { return Call(*agents_, &Agents::SyncWorker, request); },
      [&] { return Call(*agents_, &Agents::AppendLog, request); },
      [&] { return Call(*agents_, &Agents::AppendMetrics, request); },
      [&] { return Call(*agents_, &Agents::AppendCheckpointFile, request); },
      [&] { return Call(*agents_, &Agents::CommitCheckpoint, request); },
      [&] { return Call(*agents_, &Agents::VerifyCheckpoint, request); },
      [&] { return Call(*access_, &Access::WhoAmI, request); },
      [&] { return Call(*access_, &Access::ListUsers, request); },
      [&] { return Call(*access_, &Access::SetUser, request); },
      [&] { return Call(*access_, &Access::DeleteUser, request); },
      [&] { return Call(*access_, &Access::ListProjects, request); },
      [&] { return Call(*access_, &Access::SetProject, request); },
      [&] { return Call(*access_, &Access::DeleteProject, request); },
      [&] { return Call(*access_, &Access::RevokeCertificate, request); },
      [&] { return Call(*access_, &Access::ListAuditEntries, request); },
      [&] { return Call(*agents_, &Agents::FetchSecrets, request); },
      [&] { return Call(*code_service_, &Code::FindCode, request); },
      [&] { return Call(*code_service_, &Code::UploadCode, request); },
      [&] { return Call(*bundles_, &Bundles::ImportJob, request); },
      [&] { return Call(*bundles_, &Bundles::AppendImportedMetrics, request); },
      [&] { return Call(*bundles_, &Bundles::AppendImportedFile, request); },
      [&] { return Call(*bundles_, &Bundles::CommitImportedCheckpoint, request); },
  };
  return calls[number % std::size(calls)]();
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
