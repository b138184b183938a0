// Starts a server in the process, with a store in memory and a channel to it.
#include "tests/unit/server/rpc/rpc_fixture.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "server/rpc/pod_sign_in.h"

namespace trainyard::rpc {

RpcTest::RpcTest() {
  blobs_ = *runtime::BlobStore::Open(dir_.path());
  code_ = *runtime::CodeStore::Open(dir_.path(), clock_);
  runtime::Runtime::Options options;
  secrets_ = *store::SecretStore::Open(dir_.path());
  targets_ = *store::NotifyStore::Open(dir_.File("notify.db"));
  specs_ = *store::SpecStore::Open(dir_.File("specs.db"));
  remarks_ = *store::RemarkStore::Open(dir_.File("remarks.db"));
  courier_ = std::make_unique<notify::Courier>(notify::Courier::Options(), *targets_, store_,
                                               board_, clock_);
  options.on_fatal = [](const absl::Status& status) { TY_CHECK_OK(status); };
  runtime_ = *runtime::Runtime::Start(std::move(options), store_, clock_, board_);
  verifier_ = std::make_unique<runtime::CheckpointVerifier>(*blobs_, board_, executor_, *runtime_);
  audit_ = std::make_unique<runtime::AuditLog>(access_store_, clock_, absl::InfiniteDuration());
  services_ = std::make_unique<Services>(
      Services{*runtime_, board_, notifier_, executor_, metric_reads_, metric_writes_, logs_,
               *blobs_, *code_, *verifier_, metrics_, store_, open_streams_, *Rng::Real(),
               connections_, directory_, access_store_, *audit_, "1.2.3"});
  services_->secrets = secrets_.get();
  services_->targets = targets_.get();
  services_->courier = courier_.get();
  services_->specs = specs_.get();
  services_->remarks = remarks_.get();
  sweep_store_ = *store::SweepStore::Open(dir_.File("sweeps.db"));
  sweeps::Keeper::Options keeper;
  keeper.submit = [this](const store::SweepRecord& sweep, const sweeps::NewJob& job) {
    return SubmissionOfTrial(sweep, job, *services_);
  };
  sweeps_ = *sweeps::Keeper::Open(std::move(keeper), *sweep_store_, *runtime_, board_, notifier_,
                                  metrics_, *Clock::Real());
  services_->sweeps = sweeps_.get();
  services_->sign_in->user_of_system = [](const std::string& user) {
    return User(user, access::Role::kAdmin);
  };
  job_service_ = std::make_unique<JobServiceImpl>(*services_);
  fleet_service_ = std::make_unique<FleetServiceImpl>(*services_);
  sharing_service_ = std::make_unique<SharingServiceImpl>(*services_);
  checkpoint_service_ = std::make_unique<CheckpointServiceImpl>(*services_);
  code_service_ = std::make_unique<CodeServiceImpl>(*services_);
  bundle_service_ = std::make_unique<BundleServiceImpl>(*services_);
  agent_service_ = std::make_unique<AgentServiceImpl>(*services_);
  access_service_ = std::make_unique<AccessServiceImpl>(*services_);
  secret_service_ = std::make_unique<SecretServiceImpl>(*services_);
  spec_service_ = std::make_unique<SpecServiceImpl>(*services_);
  sweep_service_ = std::make_unique<SweepServiceImpl>(*services_);
  provider_service_ = std::make_unique<ProviderServiceImpl>(*services_);
  notify_service_ = std::make_unique<NotifyServiceImpl>(*services_);
  tunnel_service_ = std::make_unique<TunnelServiceImpl>(*services_);
  grpc::ServerBuilder builder;
  builder.RegisterService(job_service_.get());
  builder.RegisterService(fleet_service_.get());
  builder.RegisterService(sharing_service_.get());
  builder.RegisterService(checkpoint_service_.get());
  builder.RegisterService(code_service_.get());
  builder.RegisterService(bundle_service_.get());
  builder.RegisterService(agent_service_.get());
  builder.RegisterService(access_service_.get());
  builder.RegisterService(secret_service_.get());
  builder.RegisterService(spec_service_.get());
  builder.RegisterService(sweep_service_.get());
  builder.RegisterService(provider_service_.get());
  builder.RegisterService(notify_service_.get());
  builder.RegisterService(tunnel_service_.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> waits;
  waits.push_back(PodSignIn(*services_));
  builder.experimental().SetInterceptorCreators(std::move(waits));
  server_ = builder.BuildAndStart();
  access::Peer root = User("root", access::Role::kAdmin);
  root.is_host = true;
  root.role_source = access::RoleSource::kServer;
  const auto channel = Connect(root);
  jobs_ = v1::JobService::NewStub(channel);
  fleet_ = v1::FleetService::NewStub(channel);
  sharing_ = v1::SharingService::NewStub(channel);
  checkpoints_ = v1::CheckpointService::NewStub(channel);
  code_calls_ = v1::CodeService::NewStub(channel);
  bundles_ = v1::BundleService::NewStub(channel);
  agents_ = v1::AgentService::NewStub(channel);
  access_ = v1::AccessService::NewStub(channel);
}

std::shared_ptr<grpc::Channel> RpcTest::Connect(access::Peer peer, int* descriptor) {
  int ends[2];
  TY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  if (descriptor != nullptr) *descriptor = ends[0];
  connections_.Add(ends[0], std::move(peer));
  grpc::AddInsecureChannelFromFd(server_.get(), ends[0]);
  return grpc::CreateInsecureChannelFromFd("test", ends[1]);
}

access::Peer RpcTest::User(const std::string& name, access::Role role) {
  access::Peer peer;
  peer.user = name;
  peer.role = role;
  return peer;
}

RpcTest::~RpcTest() {
  open_streams_.EndAll(absl::UnavailableError("the test is over"));
  runtime_->Stop();
  server_->Shutdown();
  server_->Wait();
}

std::unique_ptr<grpc::ClientContext> RpcTest::Context(const std::string& user) {
  auto context = std::make_unique<grpc::ClientContext>();
  rpc::SetTimeout(*context, absl::Seconds(30));
  if (!user.empty()) context->AddMetadata(kActAsKey, user);
  return context;
}

v1::JobSpec RpcTest::Spec(const std::string& name) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(2);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  return spec;
}

v1::Job RpcTest::CreateJob(const std::string& name) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec(name);
  v1::Job job;
  const grpc::Status status = jobs_->CreateJob(Context().get(), request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

v1::Job RpcTest::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  const grpc::Status status = jobs_->GetJob(Context().get(), request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

void RpcTest::Register(const std::string& type, bool bf16) {
  v1::RegisterWorkerRequest request;
  request.set_worker("lab-1");
  request.set_uid("u-1");
  request.set_version("1.0");
  for (const int number : {0, 1}) {
    v1::Device* device = request.add_devices();
    device->set_name(absl::StrCat(type, "-", number));
    device->set_type(type);
    device->set_bf16(bf16);
    device->set_health(v1::DEVICE_HEALTH_OK);
  }
  v1::RegisterWorkerResponse response;
  const grpc::Status status = agents_->RegisterWorker(Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  session_ = response.session();
  sequence_ = 0;
}

v1::SyncWorkerResponse RpcTest::Sync(std::vector<v1::ObservedAttempt> observed,
                                     int64_t desired_revision) {
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  request.set_sequence(++sequence_);
  request.set_desired_revision(desired_revision);
  for (auto& attempt : observed) *request.add_attempts() = std::move(attempt);
  v1::SyncWorkerResponse response;
  const grpc::Status status = agents_->SyncWorker(Context().get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

v1::ObservedAttempt RpcTest::Observed(const v1::DesiredAttempt& desired, v1::ObservedState state) {
  v1::ObservedAttempt observed;
  observed.set_attempt(desired.attempt());
  observed.set_fencing_token(desired.fencing_token());
  observed.set_state(state);
  return observed;
}

v1::DesiredAttempt RpcTest::StartRunning() {
  const v1::SyncWorkerResponse response = Sync({});
  EXPECT_EQ(response.attempts_size(), 1);
  if (response.attempts().empty()) return v1::DesiredAttempt();
  const v1::DesiredAttempt& desired = response.attempts(0);
  v1::ObservedAttempt observed = Observed(desired, v1::OBSERVED_STATE_RUNNING);
  observed.mutable_progress()->set_step(7);
  observed.set_data_digest("glyphs-v1:abc");
  Sync({observed}, response.desired_revision());
  return desired;
}

void RpcTest::Succeed(const v1::DesiredAttempt& attempt) {
  v1::ObservedAttempt observed = Observed(attempt, v1::OBSERVED_STATE_EXITED);
  observed.mutable_outcome()->set_kind(v1::AttemptOutcome::SUCCEEDED);
  observed.set_drained(true);
  Sync({observed});
}

absl::StatusOr<int64_t> RpcTest::AppendLog(const v1::DesiredAttempt& attempt, int64_t offset,
                                           const std::string& data, v1::RankStream stream) {
  v1::AppendLogRequest request;
  request.set_stream(stream);
  request.set_session(session_);
  request.set_attempt(attempt.attempt());
  request.set_fencing_token(attempt.fencing_token());
  request.set_offset(offset);
  request.set_data(data);
  v1::AppendResponse response;
  const grpc::Status status = agents_->AppendLog(Context().get(), request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response.next_offset();
}

absl::StatusOr<int64_t> RpcTest::AppendMetrics(const v1::DesiredAttempt& attempt, int64_t offset,
                                               const std::vector<int64_t>& steps) {
  v1::AppendMetricsRequest request;
  request.set_session(session_);
  request.set_attempt(attempt.attempt());
  request.set_fencing_token(attempt.fencing_token());
  request.set_offset(offset);
  request.set_end_offset(offset + 10 * static_cast<int64_t>(steps.size()));
  for (const int64_t step : steps) {
    v1::MetricPoint* point = request.add_points();
    point->set_step(step);
    point->set_name("train.loss");
    point->set_value(1.0 / static_cast<double>(step + 1));
  }
  v1::AppendResponse response;
  const grpc::Status status = agents_->AppendMetrics(Context().get(), request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response.next_offset();
}

}  // namespace trainyard::rpc
