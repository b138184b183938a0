// Builds the parts of the server in order, listens, and removes files that are no longer needed.
#include "server/app.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/memory_limit.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/channel.h"
#include "server/acceptor.h"
#include "server/entrance.h"
#include "server/housekeeper.h"
#include "server/leftovers.h"
#include "server/metrics/exposition.h"
#include "server/notify/courier.h"
#include "server/provisioning.h"
#include "server/rpc/access_service.h"
#include "server/rpc/agent_service.h"
#include "server/rpc/bundle_service.h"
#include "server/rpc/checkpoint_copy.h"
#include "server/rpc/checkpoint_imports.h"
#include "server/rpc/checkpoint_service.h"
#include "server/rpc/code_service.h"
#include "server/rpc/fleet_service.h"
#include "server/rpc/job_service.h"
#include "server/rpc/limits.h"
#include "server/rpc/notify_service.h"
#include "server/rpc/pod_sign_in.h"
#include "server/rpc/provider_service.h"
#include "server/rpc/remarks.h"
#include "server/rpc/saved_specs.h"
#include "server/rpc/secret_service.h"
#include "server/rpc/sharing_service.h"
#include "server/rpc/spec_service.h"
#include "server/rpc/streams.h"
#include "server/rpc/sweep_service.h"
#include "server/rpc/tunnel_service.h"
#include "server/rpc/verifications.h"
#include "server/runtime/bucket_copier.h"
#include "server/store/series.h"
#include "server/store/sqlite/notify_store.h"
#include "server/store/sqlite/remark_store.h"
#include "server/store/sqlite/secret_store.h"
#include "server/store/sqlite/spec_store.h"
#include "server/store/sqlite/sqlite_access_store.h"
#include "server/store/sqlite/sqlite_metrics_store.h"
#include "server/store/sqlite/sqlite_store.h"
#include "server/store/sqlite/sweep_store.h"
#include "server/sweeps/keeper.h"

namespace trainyard {
namespace {

// When the server stops, calls that have begun get this much time to finish.
constexpr absl::Duration kShutdownGrace = absl::Seconds(5);
// The memory that gRPC may hold for messages of all connections together.
constexpr size_t kMessageMemoryMax = size_t{1} << 30;
// With more memory than this, all connections are closed, since nothing else needs as much. The
// yard has less than 1 KiB for each job.
constexpr int64_t kResidentMax = int64_t{4} << 30;
// The calls that one connection may have open. Further ones wait for their turn at the client.
constexpr int kCallsOfConnectionMax = 1000;
// Workers and clients may ping as often as this while no call is open.
constexpr int kPingIntervalMinMs = 5000;

// gRPC's log is for developers only, because the calls return what users need to know.
void LogOfGrpc(gpr_log_func_args* args) {
  Log(LogLevel::kDebug, args->message);
}

// The state on disk is unknown, so only a new start can read it again.
void Die(const absl::Status& status) {
  LogError("cannot commit; the server ends, and nothing that was acknowledged is lost",
           {{"error", status.ToString()}});
  std::_Exit(EXIT_FAILURE);
}

// Says in the log, and in the history of each job, which points are lost. Workers send again what
// they still have, which is all of attempts that have not ended.
void TellLostPoints(const std::vector<store::LostPoints>& lost, runtime::Runtime& runtime) {
  std::map<JobId, std::vector<store::LostPoints>> by_job;
  for (const store::LostPoints& stream : lost) by_job[stream.attempt.job].push_back(stream);
  for (const auto& [job, streams] : by_job) {
    int64_t points = 0;
    for (const store::LostPoints& stream : streams) points += stream.points;
    const store::LostPoints& first = streams.front();
    const std::string message = absl::StrCat(
        "metrics.db has lost ", points, " points of ", streams.size(), " streams; the first is ",
        store::MetricStreamName(first.attempt, first.rank), ", from byte ", first.offset,
        " on. What a worker still has is sent again, and the rest is a gap");
    LogError("points that were acknowledged are lost; look at the disk of the state directory",
             {{"job", JobName(job)}, {"lost", message}});
    runtime.Post(core::NoteLostMetrics{job, message}, [](const absl::StatusOr<core::Reply>&) {});
  }
}

void TellUnlessRemoved(JobId job, const absl::Status& removed) {
  if (removed.ok()) return;
  LogWarning("cannot remove what was deleted of a job; the next start tries again",
             {{"job", JobName(job)}, {"error", removed.ToString()}});
}

}  // namespace

std::string DefaultStateDir(absl::string_view xdg_state_home, absl::string_view home) {
  return JoinPath(StateHome(xdg_state_home, home), "server");
}

// The members are in the order of construction. Each borrows only from members above it.
class App::Impl {
 public:
  explicit Impl(DirectoryLock lock) : lock_(std::move(lock)) {}
  ~Impl() { Stop(); }

  absl::Status Open(const std::string& state_dir, const ServerOptions& given);
  absl::Status Listen(const ServerOptions& given);
  // Begins with what no request asks for.
  void KeepHouse(const KeepRules& keep);
  bool IsAlive();
  void Stop();
  const std::vector<std::string>& addresses() const { return entrance_->addresses(); }

 private:
  absl::Status OpenAccess(const ServerOptions& given);
  // Makes the copier, if there is a bucket.
  absl::Status OpenCopier(const BucketFlags& bucket);
  void StartCopier(int64_t next_job);
  // Makes the courier, which tells of events from `next_event` on.
  absl::Status OpenNotifications(const ServerOptions& given, int64_t next_event);
  void CleanUp(const core::Turn& turn);
  void RemoveUploadsOfTheDead();
  void RemoveLogsOf(JobId job);
  void RemoveMetricsOf(JobId job);
  void RemoveRemarksOn(JobId job);
  // Keeps the results of second runs that nobody could tell any more after the deletion.
  void KeepResultsBefore(const core::DeleteJob& deletion);

  const DirectoryLock lock_;
  std::string state_dir_;
  metrics::Meters meters_{*Clock::Real()};
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<store::Store> measured_store_;
  std::unique_ptr<store::MetricsStore> metrics_;
  std::unique_ptr<runtime::BlobStore> blobs_;
  std::unique_ptr<runtime::CodeStore> code_;
  std::unique_ptr<runtime::LogStore> logs_;
  std::unique_ptr<store::RemarkStore> remarks_;
  std::unique_ptr<store::SweepStore> sweep_store_;
  runtime::Notifier notifier_;
  runtime::Board board_{notifier_};
  rpc::Streams streams_;
  runtime::Executor executor_;
  runtime::Executor metric_reads_{store::kMetricReadersMax};
  // The store has one writer, so further threads would wait for it.
  runtime::Executor metric_writes_{1};
  access::Directory directory_;
  std::unique_ptr<store::SecretStore> secrets_;
  std::unique_ptr<store::SpecStore> specs_;
  std::unique_ptr<store::NotifyStore> targets_;
  std::optional<notify::Courier> courier_;
  // The writer calls it, so it outlives the runtime. Its thread, which needs that, ends before.
  std::unique_ptr<runtime::BucketCopier> copier_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<runtime::CheckpointVerifier> verifier_;
  std::unique_ptr<store::AccessStore> access_store_;
  std::optional<runtime::AuditLog> audit_;
  std::optional<Entrance> entrance_;
  std::unique_ptr<rpc::Services> services_;
  std::unique_ptr<rpc::CheckpointImports> imports_;
  std::unique_ptr<sweeps::Keeper> sweeps_;
  std::unique_ptr<Provisioning> provisioning_;
  // The same, once they are there. The writer runs before that.
  std::atomic<rpc::Services*> judges_ = nullptr;
  std::unique_ptr<rpc::JobServiceImpl> jobs_;
  std::unique_ptr<rpc::FleetServiceImpl> fleet_;
  std::unique_ptr<rpc::SharingServiceImpl> sharing_;
  std::unique_ptr<rpc::CheckpointServiceImpl> checkpoints_;
  std::unique_ptr<rpc::CodeServiceImpl> code_service_;
  std::unique_ptr<rpc::BundleServiceImpl> bundles_;
  std::unique_ptr<rpc::AgentServiceImpl> agents_;
  std::unique_ptr<rpc::AccessServiceImpl> access_;
  std::unique_ptr<rpc::SecretServiceImpl> secret_service_;
  std::unique_ptr<rpc::NotifyServiceImpl> notify_service_;
  std::unique_ptr<rpc::SpecServiceImpl> spec_service_;
  std::unique_ptr<rpc::SweepServiceImpl> sweep_service_;
  std::unique_ptr<rpc::ProviderServiceImpl> provider_service_;
  std::unique_ptr<rpc::TunnelServiceImpl> tunnels_;
  std::optional<metrics::Exposition> exposition_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<Housekeeper> housekeeper_;
  // Cleared while the scheduler is asked. The question may outlive this object.
  const std::shared_ptr<std::atomic<bool>> has_answered_ =
      std::make_shared<std::atomic<bool>>(true);
};

absl::Status App::Impl::Open(const std::string& state_dir, const ServerOptions& given) {
  state_dir_ = state_dir;
  unlink(JoinPath(state_dir_, "ready").c_str());
  TY_ASSIGN_OR_RETURN(store_, store::OpenSqliteStore(JoinPath(state_dir_, "trainyard.db"),
                                                     {given.accept_lost_commits}));
  TY_ASSIGN_OR_RETURN(auto metrics,
                      store::OpenSqliteMetricsStore(JoinPath(state_dir_, "metrics.db")));
  const std::vector<store::LostPoints> lost = metrics->lost();
  metrics_ = std::move(metrics);
  TY_ASSIGN_OR_RETURN(blobs_, runtime::BlobStore::Open(state_dir_));
  TY_ASSIGN_OR_RETURN(code_, runtime::CodeStore::Open(state_dir_, *Clock::Real()));
  logs_ = std::make_unique<runtime::LogStore>(JoinPath(state_dir_, "logs"));
  TY_ASSIGN_OR_RETURN(secrets_, store::SecretStore::Open(state_dir_));
  TY_ASSIGN_OR_RETURN(specs_, store::SpecStore::Open(JoinPath(state_dir_, "specs.db")));
  TY_RETURN_IF_ERROR(rpc::SavePublished(*specs_, Version(), Clock::Real()->Now()));
  TY_ASSIGN_OR_RETURN(remarks_, store::RemarkStore::Open(JoinPath(state_dir_, "remarks.db")));
  TY_ASSIGN_OR_RETURN(sweep_store_, store::SweepStore::Open(JoinPath(state_dir_, "sweeps.db")));
  runtime::Runtime::Options options;
  options.config = given.config;
  options.make_policy = [this] { return meters_.measures.MeasuredPolicy(); };
  measured_store_ = meters_.measures.MeasuredStore(*store_);
  TY_RETURN_IF_ERROR(OpenCopier(given.bucket));
  const std::string orphans = OrphanFolder(state_dir_, Clock::Real()->Now());
  DeletedStreams deleted;
  int64_t next_job = 0;
  options.on_load = [this, &given, &orphans, &deleted,
                     &next_job](const core::Snapshot& stored) -> absl::Status {
    meters_.yard.Load(stored);
    next_job = stored.next_job;
    TY_RETURN_IF_ERROR(OpenNotifications(given, stored.next_event));
    for (const store::RemarkedJob& job : remarks_->ListJobs()) {
      TY_ASSIGN_OR_RETURN(const bool was_deleted, WasDeleted(stored, *store_, job.number));
      if (was_deleted) RemoveRemarksOn(job.number);
    }
    TY_ASSIGN_OR_RETURN(deleted, FindDeletedStreams(stored, *store_, *logs_, *metrics_));
    return SetStreamsAside(stored, *store_, state_dir_, orphans, *logs_, *metrics_);
  };
  options.on_turn = [this](const core::Turn& turn) {
    meters_.yard.Take(turn.delta, Clock::Real()->Now());
    // It gives up the files that are then removed.
    if (copier_ != nullptr) copier_->Take(turn);
    CleanUp(turn);
    courier_->Take(turn);
  };
  options.on_fatal = Die;
  TY_ASSIGN_OR_RETURN(runtime_, runtime::Runtime::Start(std::move(options), *measured_store_,
                                                        *Clock::Real(), board_));
  executor_.Post([this, orphans] {
    RemoveUploadsOfTheDead();
    SetBlobsAside(orphans, *blobs_, board_);
  });
  for (const JobId job : deleted.logs) RemoveLogsOf(job);
  for (const JobId job : deleted.metrics) RemoveMetricsOf(job);
  TellLostPoints(lost, *runtime_);
  verifier_ = std::make_unique<runtime::CheckpointVerifier>(*blobs_, board_, executor_, *runtime_);
  TY_RETURN_IF_ERROR(OpenAccess(given));
  courier_->Start();
  services_ = std::make_unique<rpc::Services>(rpc::Services{
      *runtime_,      board_,         notifier_, executor_,    metric_reads_,
      metric_writes_, *logs_,         *blobs_,   *code_,       *verifier_,
      *metrics_,      *store_,        streams_,  *Rng::Real(), entrance_->connections(),
      directory_,     *access_store_, *audit_,   Version(),    entrance_->sign_in()});
  services_->secrets = secrets_.get();
  services_->targets = targets_.get();
  services_->courier = &*courier_;
  services_->specs = specs_.get();
  services_->remarks = remarks_.get();
  if (!given.checkpoint_sources.empty()) {
    rpc::CheckpointImports::Options imports;
    imports.places = given.checkpoint_sources;
    imports.connect = [flags = given.bucket](const std::string& bucket) {
      return ConnectBucket(flags, bucket);
    };
    imports_ =
        std::make_unique<rpc::CheckpointImports>(std::move(imports), *services_, *Clock::Real());
    services_->checkpoint_imports = imports_.get();
  }
  sweeps::Keeper::Options keeper;
  keeper.submit = [this](const store::SweepRecord& sweep, const sweeps::NewJob& job) {
    return rpc::SubmissionOfTrial(sweep, job, *services_);
  };
  TY_ASSIGN_OR_RETURN(sweeps_, sweeps::Keeper::Open(std::move(keeper), *sweep_store_, *runtime_,
                                                    board_, notifier_, *metrics_, *Clock::Real()));
  services_->sweeps = sweeps_.get();
  auto provisioning = Provisioning::Open(state_dir_, given.environment, *runtime_,
                                         *entrance_->sign_in(), *access_store_, given.kubernetes);
  // Everything else works without providers.
  if (absl::IsDataLoss(provisioning.status())) {
    LogError(
        "no cluster is asked for workers until the record of providers can be read; restore "
        "the file from a backup, or move it away",
        {{"error", std::string(provisioning.status().message())}});
  } else {
    TY_RETURN_IF_ERROR(provisioning.status());
    provisioning_ = *std::move(provisioning);
    services_->providers = &provisioning_->keeper();
    services_->complete_provider = [this](provision::ProviderSpec& spec,
                                          provision::ClusterOptions& cluster) {
      return provisioning_->Complete(spec, cluster);
    };
  }
  judges_ = services_.get();
  jobs_ = std::make_unique<rpc::JobServiceImpl>(*services_);
  fleet_ = std::make_unique<rpc::FleetServiceImpl>(*services_);
  sharing_ = std::make_unique<rpc::SharingServiceImpl>(*services_);
  checkpoints_ = std::make_unique<rpc::CheckpointServiceImpl>(*services_);
  code_service_ = std::make_unique<rpc::CodeServiceImpl>(*services_);
  bundles_ = std::make_unique<rpc::BundleServiceImpl>(*services_);
  agents_ = std::make_unique<rpc::AgentServiceImpl>(*services_);
  access_ = std::make_unique<rpc::AccessServiceImpl>(*services_);
  secret_service_ = std::make_unique<rpc::SecretServiceImpl>(*services_);
  notify_service_ = std::make_unique<rpc::NotifyServiceImpl>(*services_);
  spec_service_ = std::make_unique<rpc::SpecServiceImpl>(*services_);
  sweep_service_ = std::make_unique<rpc::SweepServiceImpl>(*services_);
  provider_service_ = std::make_unique<rpc::ProviderServiceImpl>(*services_);
  tunnels_ = std::make_unique<rpc::TunnelServiceImpl>(*services_);
  sweeps_->Start();
  if (copier_ != nullptr) StartCopier(next_job);
  exposition_.emplace(meters_, *runtime_, board_, directory_, copier_.get(), state_dir_,
                      *Clock::Real());
  return absl::OkStatus();
}

absl::Status App::Impl::OpenCopier(const BucketFlags& bucket) {
  if (bucket.place.empty()) return absl::OkStatus();
  runtime::BucketCopier::Options options;
  options.place = bucket.place;
  options.connect = [bucket]() -> absl::StatusOr<std::unique_ptr<s3::Client>> {
    TY_ASSIGN_OR_RETURN(const s3::Location location, s3::ParseLocation(bucket.place));
    return ConnectBucket(bucket, location.bucket);
  };
  options.describe = [this](const core::CheckpointRecord& checkpoint,
                            const runtime::BucketCopier::Digests& digests) {
    return rpc::DescribeCopy(checkpoint, digests, *services_);
  };
  options.was_deleted = [this](JobId job) { return WasDeleted(*store_, job); };
  options.skip_numbers = [this](JobId last) {
    runtime_->Post(core::SkipJobNumbers{last}, [](const auto&) {});
  };
  options.doubt = [this](const core::CheckpointRef& id) {
    verifier_->Verify(id, [](const auto&) {});
  };
  options.note = [this](core::NoteCheckpointCopy note, runtime::PostDone done) {
    runtime_->Post(std::move(note), std::move(done));
  };
  TY_ASSIGN_OR_RETURN(copier_, runtime::BucketCopier::Create(std::move(options), *blobs_, board_,
                                                             *Clock::Real(), *Rng::Real()));
  return absl::OkStatus();
}

void App::Impl::StartCopier(int64_t next_job) {
  // The id is readable where a provider is not.
  const auto id = provisioning_ != nullptr ? absl::StatusOr<std::string>(provisioning_->server_id())
                                           : Provisioning::ReadServerId(state_dir_);
  if (id.ok() && !id->empty()) return copier_->Start(*id, next_job);
  LogError(
      "no checkpoint is copied to the bucket until the id of the server can be read, which marks "
      "its folder; restore providers.db from a backup",
      {{"error", id.ok() ? "it has none" : std::string(id.status().message())}});
}

absl::Status App::Impl::OpenNotifications(const ServerOptions& given, int64_t next_event) {
  TY_ASSIGN_OR_RETURN(targets_, store::NotifyStore::Open(JoinPath(state_dir_, "notify.db")));
  notify::Courier::Options options;
  options.rules = given.notify;
  options.sendmail = given.sendmail;
  options.mail_from = given.mail_from;
  options.next_event = next_event;
  options.is_welcome = [this](const std::string& user) {
    return directory_.RoleOf(user) != access::Role::kNone;
  };
  if (!options.sendmail.empty() && ::access(options.sendmail.c_str(), X_OK) != 0) {
    if (given.sendmail != kDefaultSendmail) {
      return absl::NotFoundError(
          absl::StrCat("--sendmail: '", given.sendmail, "' is no program that can be executed"));
    }
    options.sendmail.clear();
  }
  courier_.emplace(std::move(options), *targets_, *store_, board_, *Clock::Real());
  return absl::OkStatus();
}

absl::Status App::Impl::OpenAccess(const ServerOptions& given) {
  TY_ASSIGN_OR_RETURN(access_store_,
                      store::OpenSqliteAccessStore(JoinPath(state_dir_, "access.db")));
  TY_ASSIGN_OR_RETURN(const auto users, access_store_->ListUsers());
  for (const access::UserRecord& user : users) directory_.SetUser(user);
  TY_ASSIGN_OR_RETURN(const auto projects, access_store_->ListProjects());
  for (const access::ProjectRecord& project : projects) directory_.SetProject(project);
  const absl::Duration keep =
      given.keep_audit_us > 0 ? absl::Microseconds(given.keep_audit_us) : absl::InfiniteDuration();
  audit_.emplace(*access_store_, *Clock::Real(), keep);
  entrance_.emplace(*access_store_, streams_);
  return entrance_->Open(given);
}

// Files that are no longer needed are removed after the commit that says so, never before.
void App::Impl::CleanUp(const core::Turn& turn) {
  std::vector<std::string> dropped = board_.TakeDropped();
  if (!dropped.empty()) {
    executor_.Post([this, dropped = std::move(dropped)] {
      blobs_->RemoveUnreferenced(
          dropped, [this](const std::string& hash) { return board_.IsReferenced(hash); });
    });
  }
  for (const JobId job : turn.delta.deleted_jobs) {
    RemoveLogsOf(job);
    RemoveMetricsOf(job);
    RemoveRemarksOn(job);
  }
  for (const core::JobRecord& job : turn.delta.jobs) {
    if (rpc::Services* judges = judges_; judges != nullptr) rpc::JudgeLater(*judges, job);
    if (job.logs_deleted) RemoveLogsOf(job.id);
    if (job.metrics_deleted) RemoveMetricsOf(job.id);
  }
  for (const core::AttemptRecord& attempt : turn.delta.attempts) {
    if (!core::attempt_fsm::IsFinal(attempt.state)) continue;
    executor_.Post([this] { RemoveUploadsOfTheDead(); });
    break;
  }
}

// Files are removed later, in the threads for them.
void App::Impl::RemoveLogsOf(JobId job) {
  executor_.Post([this, job] { TellUnlessRemoved(job, logs_->Remove(job)); });
}

void App::Impl::RemoveMetricsOf(JobId job) {
  metric_writes_.Post([this, job] { TellUnlessRemoved(job, metrics_->DeleteJob(job)); });
}

void App::Impl::RemoveUploadsOfTheDead() {
  const int64_t now_us = absl::ToUnixMicros(Clock::Real()->Now());
  blobs_->RemoveUploads([this, now_us](AttemptId id) {
    const auto attempt = board_.FindAttempt(id);
    if (attempt == nullptr) return false;
    if (!core::attempt_fsm::IsFinal(attempt->state)) return true;
    // The files of an imported job arrive after its end.
    const auto job = board_.FindJob(id.job);
    return job != nullptr && job->record.submission->is_imported() &&
           job->record.create_us > now_us - absl::ToInt64Microseconds(rpc::kImportTime);
  });
}

void App::Impl::RemoveRemarksOn(JobId job) {
  executor_.Post([this, job] { TellUnlessRemoved(job, remarks_->Forget(job)); });
}

void App::Impl::KeepResultsBefore(const core::DeleteJob& deletion) {
  std::promise<std::vector<rpc::SecondRun>> lost;
  runtime_->Read([&](absl::StatusOr<const core::Yard*> yard) {
    lost.set_value(yard.ok() ? rpc::SecondRunsLostWith(*services_, **yard, deletion)
                             : std::vector<rpc::SecondRun>());
  });
  rpc::KeepResults(rpc::RunSources(*services_), lost.get_future().get());
}

absl::Status App::Impl::Listen(const ServerOptions& given) {
  gpr_set_log_function(LogOfGrpc);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingIntervalMinMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsOfConnectionMax);
  // None of our clients compresses, and a thousand zeros a byte pass all limits of size.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.SetMaxReceiveMessageSize(rpc::kMessageSizeMax);
  builder.SetMaxSendMessageSize(rpc::kMessageSizeMax);
  builder.SetResourceQuota(grpc::ResourceQuota("server").Resize(kMessageMemoryMax));
  TY_RETURN_IF_ERROR(entrance_->Listen(given, state_dir_));
  builder.RegisterService(jobs_.get());
  builder.RegisterService(fleet_.get());
  builder.RegisterService(sharing_.get());
  builder.RegisterService(checkpoints_.get());
  builder.RegisterService(code_service_.get());
  builder.RegisterService(bundles_.get());
  builder.RegisterService(agents_.get());
  builder.RegisterService(access_.get());
  builder.RegisterService(secret_service_.get());
  builder.RegisterService(spec_service_.get());
  builder.RegisterService(sweep_service_.get());
  builder.RegisterService(provider_service_.get());
  builder.RegisterService(notify_service_.get());
  builder.RegisterService(tunnels_.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watches;
  watches.push_back(meters_.calls.Interceptors());
  if (given.kubernetes.is_on()) watches.push_back(rpc::PodSignIn(*services_));
  builder.experimental().SetInterceptorCreators(std::move(watches));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("the gRPC server does not start");
  entrance_->Begin(
      [this](UniqueFd connection) {
        grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
      },
      [this](metrics::Exposition::Done done) { exposition_->Write(std::move(done)); });
  if (provisioning_ != nullptr) provisioning_->Start();
  return ReplaceFile(JoinPath(state_dir_, "ready"),
                     absl::StrCat(absl::StrJoin(addresses(), "\n"), "\n"), 0600);
}

bool App::Impl::IsAlive() {
  if (!has_answered_->exchange(false)) return false;
  runtime_->Read(
      [answered = has_answered_](const absl::StatusOr<const core::Yard*>&) { *answered = true; });
  return true;
}

void App::Impl::KeepHouse(const KeepRules& keep) {
  Housekeeper::Options options;
  options.keep = keep;
  options.measure = [this](JobId job) -> absl::StatusOr<core::StreamBytes> {
    TY_ASSIGN_OR_RETURN(const int64_t log_bytes, logs_->SizeOf(job));
    TY_ASSIGN_OR_RETURN(const int64_t metric_bytes, metrics_->SizeOf(job));
    return core::StreamBytes{log_bytes, metric_bytes};
  };
  options.is_kept = [this](const core::JobRecord& job) {
    const auto remarks = rpc::RemarksOn(remarks_.get(), job);
    return remarks != nullptr && remarks->tags.contains(std::string(kKeepTag));
  };
  options.before_deletion = [this](const core::DeleteJob& deletion) {
    KeepResultsBefore(deletion);
  };
  options.memory.trim = [] { malloc_trim(0); };
  options.memory.close_connections = [this] { entrance_->EndConnections(); };
  options.sweep_connections = [this] { entrance_->Sweep(); };
  options.sweep_code = [this] {
    code_->Sweep([this](const std::string& digest) {
      return board_.IsCodeUsed(digest) ||
             specs_->IsCodeUsed(digest, [](const v1::SavedSpec&) { return true; });
    });
  };
  options.memory_high = std::min(kResidentMax, AllowedMemory() / 2);
  housekeeper_.emplace(std::move(options), *runtime_, *Clock::Real());
}

void App::Impl::Stop() {
  // It notes what it has done, so it ends before the runtime.
  if (copier_ != nullptr) copier_->Stop();
  if (imports_ != nullptr) imports_->Stop();
  if (server_ == nullptr) return;
  LogInfo("shutting down");
  housekeeper_.reset();
  unlink(JoinPath(state_dir_, "ready").c_str());
  server_->GetHealthCheckService()->SetServingStatus(false);
  entrance_->StopAccepting();
  streams_.EndAll(absl::UnavailableError("the server is shutting down; try again"));
  verifier_->Stop();
  sweeps_->Stop();
  if (provisioning_ != nullptr) provisioning_->Stop();
  runtime_->Stop();
  courier_->Stop();
  server_->Shutdown(absl::ToChronoTime(Clock::Real()->Now() + kShutdownGrace));
  server_->Wait();
  entrance_->Close();
  server_.reset();
}

App::App(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
App::~App() {
  Stop();
}
const std::vector<std::string>& App::addresses() const {
  return impl_->addresses();
}
bool App::IsAlive() {
  return impl_->IsAlive();
}

void App::Stop() {
  impl_->Stop();
}

absl::StatusOr<std::unique_ptr<App>> App::Start(const ServerOptions& options) {
  InitLog("trainyard-server", LogLevel::kInfo, options.log_format);
  // A client that disappears while the server writes to it must not end the process.
  std::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  // The path is absolute, since the address of the socket is shown to others.
  const std::string state_dir = std::filesystem::absolute(options.state_dir).string();
  TY_RETURN_IF_ERROR(MakeDirectories(state_dir, 0700));
  TY_ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Acquire(state_dir));
  auto impl = std::make_unique<Impl>(std::move(lock));
  TY_RETURN_IF_ERROR(impl->Open(state_dir, options));
  TY_RETURN_IF_ERROR(impl->Listen(options));
  impl->KeepHouse(options.keep);
  for (const std::string& address : impl->addresses()) LogInfo("listening on " + address);
  return std::unique_ptr<App>(new App(std::move(impl)));
}

}  // namespace trainyard
