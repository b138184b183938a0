#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "common/base/report_limits.h"
#include "server/rpc/limits.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;

class AgentServiceTest : public RpcTest {};

TEST_F(AgentServiceTest, RegistrationTellsSessionAndIntervals) {
  v1::RegisterWorkerRequest request;
  request.set_worker("lab-2");
  request.set_uid("u");
  v1::RegisterWorkerResponse response;
  ASSERT_TRUE(agents_->RegisterWorker(Context().get(), request, &response).ok());
  EXPECT_EQ(response.session().size(), 36u);
  EXPECT_EQ(response.lease_duration().seconds(), 15);
  EXPECT_EQ(response.sync_interval().seconds(), 5);
}

TEST_F(AgentServiceTest, ARegistrationWithFaultsNamesThemAll) {
  v1::RegisterWorkerRequest request;
  request.set_worker("Lab 2");
  v1::Device* device = request.add_devices();
  device->set_name("cpu 0");
  device->set_island(-1);
  *request.add_devices() = *device;
  (*request.mutable_labels())["Zone"] = "a";
  v1::RegisterWorkerResponse response;
  const auto status = FromGrpcStatus(agents_->RegisterWorker(Context().get(), request, &response));
  std::vector<std::string> fields;
  for (const auto& violation : GetFieldViolations(status)) fields.push_back(violation.field);
  EXPECT_THAT(fields, ElementsAre("worker", "uid", "devices[0].name", "devices[0].type",
                                  "devices[0].island", "devices[1].name", "devices[1].type",
                                  "devices[1].island", "devices[1].name", "labels"));
}

TEST_F(AgentServiceTest, AWorkerIsToldToRunAndThenToStop) {
  Register();
  CreateJob("a");
  v1::SyncWorkerResponse response = Sync({});
  ASSERT_EQ(response.attempts_size(), 1);
  const v1::DesiredAttempt run = response.attempts(0);
  EXPECT_EQ(run.attempt(), "jobs/1/attempts/1");
  EXPECT_EQ(run.action(), v1::DesiredAttempt::RUN);
  EXPECT_EQ(run.spec().train().global_batch(), 64);
  EXPECT_EQ(run.world_size(), 1);
  ASSERT_EQ(run.ranks_size(), 1);
  EXPECT_GT(run.fencing_token(), 0);

  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/1");
  v1::Job job;
  ASSERT_TRUE(jobs_->CancelJob(Context().get(), cancel, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_STOPPING);
  response = Sync({Observed(run, v1::OBSERVED_STATE_RUNNING)});
  ASSERT_EQ(response.attempts_size(), 1);
  EXPECT_EQ(response.attempts(0).action(), v1::DesiredAttempt::STOP);
  EXPECT_EQ(response.attempts(0).stop().reason(), v1::STOP_REASON_CANCEL);
  EXPECT_EQ(response.attempts(0).stop().grace().seconds(), 10);
}

TEST_F(AgentServiceTest, ALongPollIsAnsweredByANewJob) {
  Register();
  const int64_t revision = Sync({}).desired_revision();
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  request.set_sequence(++sequence_);
  request.set_desired_revision(revision);
  request.mutable_max_wait()->set_seconds(5);
  const auto context = Context();
  grpc::CompletionQueue queue;
  const auto call = agents_->AsyncSyncWorker(context.get(), request, &queue);
  v1::SyncWorkerResponse response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  CreateJob("a");
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(response.desired_revision(), revision);
  EXPECT_EQ(response.attempts_size(), 1);
}

TEST_F(AgentServiceTest, AnUnknownSessionMustRegisterAgain) {
  v1::SyncWorkerRequest request;
  request.set_session("nobody");
  v1::SyncWorkerResponse response;
  const auto status = FromGrpcStatus(agents_->SyncWorker(Context().get(), request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "UNKNOWN_SESSION");
}

TEST_F(AgentServiceTest, AReportWithFaultsNamesThemAll) {
  Register();
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  v1::ObservedAttempt* attempt = request.add_attempts();
  attempt->set_attempt("jobs/1");
  attempt->set_state(v1::OBSERVED_STATE_EXITED);
  request.mutable_leave_within()->set_seconds(-1);
  v1::SyncWorkerResponse response;
  const auto status = FromGrpcStatus(agents_->SyncWorker(Context().get(), request, &response));
  std::vector<std::string> fields;
  for (const auto& violation : GetFieldViolations(status)) fields.push_back(violation.field);
  EXPECT_THAT(fields,
              ElementsAre("attempts[0].attempt", "attempts[0].outcome.kind", "leave_within"));
}

TEST_F(AgentServiceTest, StreamsNeedTheSessionTheTokenAndTheRank) {
  Register();
  CreateJob("a");
  v1::DesiredAttempt attempt = StartRunning();
  ASSERT_TRUE(AppendLog(attempt, 0, "x").ok());

  v1::DesiredAttempt stale = attempt;
  stale.set_fencing_token(attempt.fencing_token() - 1);
  EXPECT_EQ(ErrorReason(AppendLog(stale, 1, "x").status()), "STALE_FENCING_TOKEN");
  EXPECT_EQ(ErrorReason(AppendMetrics(stale, 0, {1}).status()), "STALE_FENCING_TOKEN");

  v1::DesiredAttempt absent = attempt;
  absent.set_attempt("jobs/1/attempts/9");
  EXPECT_EQ(AppendLog(absent, 0, "x").status().code(), absl::StatusCode::kNotFound);

  v1::AppendLogRequest request;
  request.set_session(session_);
  request.set_attempt(attempt.attempt());
  request.set_fencing_token(attempt.fencing_token());
  request.set_rank(3);
  v1::AppendResponse response;
  auto status = FromGrpcStatus(agents_->AppendLog(Context().get(), request, &response));
  EXPECT_EQ(GetFieldViolations(status).at(0).field, "rank");

  session_ = "nobody";
  EXPECT_EQ(ErrorReason(AppendLog(attempt, 1, "x").status()), "UNKNOWN_SESSION");
}

TEST_F(AgentServiceTest, AppendedBytesComeOnceWhateverIsSentAgain) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  EXPECT_EQ(*AppendLog(attempt, 0, "hello"), 5);
  EXPECT_EQ(*AppendLog(attempt, 0, "hello wo"), 8);
  const auto gap = AppendLog(attempt, 9, "x");
  EXPECT_EQ(ErrorReason(gap.status()), "OFFSET_MISMATCH");
  EXPECT_EQ(GetErrorMetadata(gap.status()).at(error::kExpectedOffset), "8");
  const std::string large(kChunkBytesMax + 1, 'x');
  EXPECT_EQ(GetFieldViolations(AppendLog(attempt, 8, large).status()).at(0).field, "data");
}

TEST_F(AgentServiceTest, TheTimelineHasOffsetsOfItsOwn) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  EXPECT_EQ(*AppendLog(attempt, 0, "hello", v1::RANK_STREAM_LOG), 5);
  EXPECT_EQ(*AppendLog(attempt, 0, "{}\n", v1::RANK_STREAM_TRACE), 3);
  EXPECT_EQ(*AppendLog(attempt, 0, "{}\n{}\n", v1::RANK_STREAM_TRACE), 6);
  const auto gap = AppendLog(attempt, 7, "x", v1::RANK_STREAM_TRACE);
  EXPECT_EQ(GetErrorMetadata(gap.status()).at(error::kExpectedOffset), "6");
  EXPECT_THAT(std::string(gap.status().message()), ::testing::HasSubstr("trace of rank 0"));
  EXPECT_EQ(*AppendLog(attempt, 5, " world"), 11);
  const auto unknown = AppendLog(attempt, 0, "x", static_cast<v1::RankStream>(7));
  EXPECT_EQ(GetFieldViolations(unknown.status()).at(0).field, "stream");
}

TEST_F(AgentServiceTest, WhoHostsWhatIsShownAsTheWorkerSaysIt) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  EXPECT_EQ(GetJob("jobs/1").progress().hosting_size(), 0);
  v1::ObservedAttempt observed = Observed(attempt, v1::OBSERVED_STATE_RUNNING);
  v1::Progress& progress = *observed.mutable_progress();
  progress.set_step(8);
  v1::RankHosting& host = *progress.add_hosting();
  host.set_rank(1);
  host.set_first_replica(6);
  host.set_replicas(2);
  host.set_samples_per_s(1350.5);
  progress.set_hosting_reason("speeds of steps 3 to 10");
  progress.set_fallbacks(2);
  progress.set_first_fallback("conv1 conv2d: cuDNN has no plan");
  Sync({observed});
  const v1::Progress shown = GetJob("jobs/1").progress();
  ASSERT_EQ(shown.hosting_size(), 1);
  EXPECT_EQ(shown.hosting(0).ShortDebugString(), host.ShortDebugString());
  EXPECT_EQ(shown.hosting_reason(), "speeds of steps 3 to 10");
  EXPECT_EQ(shown.fallbacks(), 2);
  EXPECT_EQ(shown.first_fallback(), "conv1 conv2d: cuDNN has no plan");
}

TEST_F(AgentServiceTest, AHostingOutOfRangeIsRefusedWithAllThatIsWrong) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  request.set_sequence(100);
  *request.add_attempts() = Observed(attempt, v1::OBSERVED_STATE_RUNNING);
  v1::Progress& progress = *request.mutable_attempts(0)->mutable_progress();
  v1::RankHosting& host = *progress.add_hosting();
  host.set_rank(4096);
  host.set_first_replica(-1);
  host.set_stage(64);
  host.set_samples_per_s(std::nan(""));
  progress.set_hosting_reason(std::string(1001, 'x'));
  progress.set_first_fallback(std::string(1001, 'x'));
  progress.set_fallbacks(-1);
  v1::SyncWorkerResponse response;
  auto status = FromGrpcStatus(agents_->SyncWorker(Context().get(), request, &response));
  std::vector<std::string> fields;
  for (const auto& violation : GetFieldViolations(status)) fields.push_back(violation.field);
  const std::string path = "attempts[0].progress.hosting";
  EXPECT_THAT(fields, ElementsAre(path + "_reason", "attempts[0].progress.fallbacks",
                                  "attempts[0].progress.first_fallback", path + "[0].rank",
                                  path + "[0].first_replica", path + "[0].stage",
                                  path + "[0].samples_per_s"));
  progress.Clear();
  for (int i = 0; i < 4097; ++i) progress.add_hosting();
  status = FromGrpcStatus(agents_->SyncWorker(Context().get(), request, &response));
  ASSERT_EQ(GetFieldViolations(status).size(), 1U);
  EXPECT_EQ(GetFieldViolations(status)[0].field, path);
}

TEST_F(AgentServiceTest, MetricPointsComeOnceWhateverIsSentAgain) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  EXPECT_EQ(*AppendMetrics(attempt, 0, {1, 2}), 20);
  EXPECT_EQ(*AppendMetrics(attempt, 0, {1, 2}), 20);
  // Lines cannot be cut by bytes: overlap that is not a repetition starts at the server's offset.
  const auto overlap = AppendMetrics(attempt, 10, {2, 3});
  EXPECT_EQ(GetErrorMetadata(overlap.status()).at(error::kExpectedOffset), "20");
  EXPECT_EQ(*AppendMetrics(attempt, 20, {3}), 30);
  EXPECT_EQ(metrics_.ReadAfter(JobId{1}, {}, 0, 100)->points.size(), 3u);
}

TEST_F(AgentServiceTest, PointsOfADeviceHaveOffsetsOfTheirOwn) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  EXPECT_EQ(*AppendMetrics(attempt, 0, {1, 2}), 20);
  v1::AppendMetricsRequest request;
  request.set_session(session_);
  request.set_attempt(attempt.attempt());
  request.set_fencing_token(attempt.fencing_token());
  request.set_of_device(true);
  request.set_end_offset(7);
  request.add_points()->set_name("gpu.power_watts");
  v1::AppendResponse response;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(agents_->AppendMetrics(Context().get(), request, &response).ok());
    EXPECT_EQ(response.next_offset(), 7);
  }
  EXPECT_EQ(*AppendMetrics(attempt, 20, {3}), 30);
  EXPECT_EQ(metrics_.ReadAfter(JobId{1}, {}, 0, 100)->points.size(), 4u);
  request.set_offset(9);
  request.set_end_offset(12);
  const auto gap = FromGrpcStatus(agents_->AppendMetrics(Context().get(), request, &response));
  EXPECT_EQ(GetErrorMetadata(gap).at(error::kExpectedOffset), "7");
  EXPECT_THAT(std::string(gap.message()), ::testing::HasSubstr("device metrics of rank 0"));
}

TEST_F(AgentServiceTest, WhatDevicesDoIsShownAsTheWorkerSaysIt) {
  Register();
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  request.set_sequence(100);
  v1::Device& device = *request.add_devices();
  device.set_name("cpu-0");
  device.set_type("cpu");
  device.mutable_usage()->set_temperature_celsius(61);
  device.mutable_usage()->set_utilization(0);
  device.mutable_usage()->set_slowed_by("heat");
  v1::SyncWorkerResponse response;
  ASSERT_TRUE(agents_->SyncWorker(Context().get(), request, &response).ok());
  v1::ListWorkersResponse workers;
  ASSERT_TRUE(fleet_->ListWorkers(Context().get(), v1::ListWorkersRequest(), &workers).ok());
  const v1::Worker& worker = workers.workers(0);
  EXPECT_EQ(worker.devices(0).usage().ShortDebugString(), device.usage().ShortDebugString());
  EXPECT_FALSE(worker.devices(0).usage().has_power_watts());
  EXPECT_FALSE(worker.devices(1).has_usage());

  request.set_sequence(101);
  device.mutable_usage()->set_slowed_by(std::string(100'000, 'x'));
  const auto status = FromGrpcStatus(agents_->SyncWorker(Context().get(), request, &response));
  EXPECT_EQ(GetFieldViolations(status).at(0).field, "devices[0].usage.slowed_by");
}

TEST_F(AgentServiceTest, AnAttemptThatHasEndedStillDeliversItsLogs) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  v1::ObservedAttempt failed = Observed(attempt, v1::OBSERVED_STATE_EXITED);
  failed.mutable_outcome()->set_kind(v1::AttemptOutcome::FAILED);
  failed.mutable_outcome()->mutable_failure()->set_failure_class(v1::FAILURE_CLASS_USER_ERROR);
  failed.mutable_outcome()->mutable_failure()->set_message("the loss is not a number");
  failed.set_drained(true);
  Sync({failed});
  const v1::Job job = GetJob("jobs/1");
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().message(), "the loss is not a number");
  EXPECT_EQ(job.failure().failure_class(), v1::FAILURE_CLASS_USER_ERROR);
  EXPECT_EQ(*AppendLog(attempt, 0, "last words"), 10);
}

TEST_F(AgentServiceTest, WhatWorkersSayHasNothingThatATerminalObeys) {
  v1::RegisterWorkerRequest request;
  request.set_worker("lab-1");
  request.set_uid("uid");
  request.set_version("1\x1b[2J");
  request.set_hostname("host\x1b]0;pwned\x07");
  v1::RegisterWorkerResponse registered;
  ASSERT_TRUE(agents_->RegisterWorker(Context().get(), request, &registered).ok());
  v1::GetWorkerRequest get;
  get.set_name("workers/lab-1");
  v1::Worker worker;
  const grpc::Status status = fleet_->GetWorker(Context().get(), get, &worker);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(worker.version(), "1?[2J");
  EXPECT_EQ(worker.hostname(), "host?]0;pwned?");
}

// A worker of an older version sends all that its ranks have written.
TEST_F(AgentServiceTest, WhatARankSaysNeverFillsAMessage) {
  Register();
  for (int i = 0; i < 2; ++i) {
    CreateJob("loud");
    const v1::DesiredAttempt attempt = StartRunning();
    v1::ObservedAttempt failed = Observed(attempt, v1::OBSERVED_STATE_EXITED);
    failed.set_drained(true);
    v1::AttemptOutcome& outcome = *failed.mutable_outcome();
    outcome.set_kind(v1::AttemptOutcome::FAILED);
    outcome.mutable_failure()->set_failure_class(v1::FAILURE_CLASS_USER_ERROR);
    outcome.mutable_failure()->set_reason(std::string(1000, 'R'));
    outcome.mutable_failure()->set_message(std::string(3'000'000, 'm'));
    for (int m = 0; m < 3000; ++m) (*failed.mutable_metrics())[absl::StrCat("train.", m)] = m;
    Sync({failed});
    Sync({});
  }
  v1::ListJobsResponse listed;
  const grpc::Status status = jobs_->ListJobs(Context().get(), v1::ListJobsRequest(), &listed);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(listed.jobs_size(), 2);
  for (const v1::Job& job : listed.jobs()) {
    EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(job.failure().reason().size(), kFailureReasonBytesMax);
    EXPECT_LE(job.failure().message().size(), kFailureMessageBytesMax);
    EXPECT_EQ(static_cast<size_t>(job.final_metrics_size()), kLastMetricsMax);
  }
}

TEST_F(AgentServiceTest, WorkersAreShownAndSteered) {
  Register();
  CreateJob("a");
  StartRunning();
  v1::ListWorkersResponse workers;
  ASSERT_TRUE(fleet_->ListWorkers(Context().get(), v1::ListWorkersRequest(), &workers).ok());
  ASSERT_EQ(workers.workers_size(), 1);
  const v1::Worker& worker = workers.workers(0);
  EXPECT_EQ(worker.name(), "workers/lab-1");
  EXPECT_EQ(worker.state(), v1::WORKER_STATE_ACTIVE);
  ASSERT_EQ(worker.devices_size(), 2);
  EXPECT_EQ(worker.devices(0).attempt() + worker.devices(1).attempt(), "jobs/1/attempts/1");

  v1::CordonWorkerRequest cordon;
  cordon.set_name("workers/lab-1");
  v1::Worker changed;
  ASSERT_TRUE(fleet_->CordonWorker(Context().get(), cordon, &changed).ok());
  EXPECT_EQ(changed.scheduling(), v1::WORKER_SCHEDULING_CORDONED);
  v1::UncordonWorkerRequest uncordon;
  uncordon.set_name("workers/lab-1");
  ASSERT_TRUE(fleet_->UncordonWorker(Context().get(), uncordon, &changed).ok());
  EXPECT_EQ(changed.scheduling(), v1::WORKER_SCHEDULING_ELIGIBLE);
  v1::DeclareWorkerLostRequest lost;
  lost.set_name("workers/lab-1");
  const grpc::Status refused = fleet_->DeclareWorkerLost(Context().get(), lost, &changed);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), ::testing::HasSubstr("it still reports"));
  v1::DeleteWorkerRequest removal;
  removal.set_name("workers/lab-1");
  v1::DeleteWorkerResponse removed;
  const grpc::Status kept = fleet_->DeleteWorker(Context().get(), removal, &removed);
  EXPECT_EQ(kept.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(kept.error_message(), ::testing::HasSubstr("it still reports"));
  v1::GetWorkerRequest get;
  get.set_name("workers/lab-9");
  EXPECT_EQ(fleet_->GetWorker(Context().get(), get, &changed).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(AgentServiceTest, TheDataSetsOfAWorkerAreShownAndDecideWhatIsAccepted) {
  Register();
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("digits");
  create.mutable_spec()->mutable_data()->set_dataset("mnist");
  v1::Job job;
  EXPECT_TRUE(jobs_->CreateJob(Context().get(), create, &job).ok()) << "nothing is known yet";
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  request.set_sequence(++sequence_);
  const auto tell = [&](const char* split, const char* error) {
    v1::DatasetSplit& told = *request.mutable_datasets()->add_splits();
    told.set_dataset("mnist");
    told.set_split(split);
    told.set_digest(std::string("xxh3-128:") + split);
    told.set_error(error);
  };
  tell("train", "");
  v1::SyncWorkerResponse synced;
  ASSERT_TRUE(agents_->SyncWorker(Context().get(), request, &synced).ok());
  auto refused = FromGrpcStatus(jobs_->CreateJob(Context().get(), create, &job));
  EXPECT_EQ(ErrorReason(refused), "CANNOT_RUN") << "it lacks the test split";
  tell("test", "is cut off");
  request.set_sequence(++sequence_);
  ASSERT_TRUE(agents_->SyncWorker(Context().get(), request, &synced).ok());
  refused = FromGrpcStatus(jobs_->CreateJob(Context().get(), create, &job));
  EXPECT_EQ(ErrorReason(refused), "CANNOT_RUN");
  request.mutable_datasets()->mutable_splits(1)->clear_error();
  request.set_sequence(++sequence_);
  ASSERT_TRUE(agents_->SyncWorker(Context().get(), request, &synced).ok());
  EXPECT_TRUE(jobs_->CreateJob(Context().get(), create, &job).ok());
  create.mutable_spec()->mutable_data()->set_digest("xxh3-128:other");
  refused = FromGrpcStatus(jobs_->CreateJob(Context().get(), create, &job));
  EXPECT_EQ(ErrorReason(refused), "CANNOT_RUN");
  v1::GetWorkerRequest get;
  get.set_name("workers/lab-1");
  v1::Worker worker;
  ASSERT_TRUE(fleet_->GetWorker(Context().get(), get, &worker).ok());
  ASSERT_EQ(worker.datasets().splits_size(), 2);
  EXPECT_EQ(worker.datasets().splits(0).digest(), "xxh3-128:train");
}

}  // namespace
}  // namespace trainyard::rpc
