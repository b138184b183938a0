// Tells the story of script.h, with the calls that real workers and clients make.
#include "tests/faults/script.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "server/store/sqlite/database.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

// More calls than this in a row are not refused by any fault of these tests.
constexpr int kTriesMax = 50;
constexpr absl::Duration kCallTimeout = absl::Seconds(20);
// A server that was killed has died after this long.
constexpr absl::Duration kDeathWait = absl::Milliseconds(200);

constexpr char kFinished[] = "request-of-a-job-that-finishes";
constexpr char kStopped[] = "request-of-a-job-that-is-cancelled-while-it-runs";
constexpr char kNeverPlaced[] = "request-of-a-job-that-is-cancelled-while-it-waits";

constexpr char kLog[] = "first line\nsecond line\n";
constexpr size_t kLogSplit = 11;
constexpr int64_t kPoints = 4;
constexpr int64_t kPointBytes = 10;
constexpr int64_t kCheckpointStep = 40;

// The content of a file of the checkpoint, which comes in two chunks.
std::string Content(const std::string& file) {
  return file == "state.json" ? "{}" : std::string(5000, 'w');
}

std::vector<v1::CheckpointFile> CheckpointFiles() {
  std::vector<v1::CheckpointFile> files;
  for (const char* name : {"model.safetensors", "state.json"}) {
    v1::CheckpointFile& file = files.emplace_back();
    file.set_name(name);
    file.set_size(static_cast<int64_t>(Content(name).size()));
    file.set_hash(ContentHash(Content(name)));
  }
  return files;
}

bool IsOffsetMismatch(const grpc::Status& status) {
  return ErrorReason(rpc::FromGrpcStatus(status)) == "OFFSET_MISMATCH";
}

// Returns the only row of a query as text.
std::string Query(store::Database& database, absl::string_view sql) {
  store::Statement& statement = database.Prepared(sql);
  const auto row = statement.Step();
  EXPECT_TRUE(row.ok() && *row) << sql << ": " << row.status();
  std::string text = row.ok() && *row ? statement.Text(0) : "";
  statement.Reset();
  return text;
}

}  // namespace

Script::Script(Shim& shim, FaultRow& row, Yard::Options options) : shim_(shim), row_(row) {
  options.server_environment.merge(shim.Environment());
  yard_ = std::make_unique<Yard>(std::move(options));
}

Script::~Script() = default;

void Script::Start(const Shim::Fault& fault) {
  shim_.Disarm();
  ASSERT_TRUE(yard_->LaunchServer());
  Connect();
  shim_.Arm(fault);
}

void Script::Connect() {
  agents_ = v1::AgentService::NewStub(yard_->channel());
  checkpoints_ = v1::CheckpointService::NewStub(yard_->channel());
}

void Script::Restart() {
  yard_->KillServer();
  Revive();
}

void Script::Revive() {
  if (recovery_fault_.has_value()) shim_.Arm(*recovery_fault_);
  bool serves = false;
  for (int start = 0; start < kTriesMax && !serves; ++start) {
    const absl::Duration begin = Clock::Real()->Uptime();
    serves = yard_->LaunchServer();
    if (serves) row_.Longest("slowest start", Clock::Real()->Uptime() - begin);
    row_.Count("restarts", 1);
  }
  if (recovery_fault_.has_value()) shim_.Disarm();
  ASSERT_TRUE(serves) << "the server does not start any more: " << yard_->server()->Err();
  Connect();
}

bool Script::HandleFailure(const std::string& what, const grpc::Status& failed) {
  const absl::Status status = rpc::FromGrpcStatus(failed);
  if (ErrorReason(status) == "UNKNOWN_SESSION") {
    Register();
    return true;
  }
  const bool may_be_dead = absl::IsUnavailable(status) || absl::IsCancelled(status);
  if (may_be_dead && WaitUntil([this] { return !yard_->server()->running(); }, kDeathWait)) {
    Revive();
    return !::testing::Test::HasFatalFailure();
  }
  if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
      IsOffsetMismatch(failed)) {
    ++refusals_;
    on_refusal_(status);
    EXPECT_FALSE(status.message().empty()) << what;
    return true;
  }
  ADD_FAILURE() << what << ": " << status;
  return false;
}

void Script::Insist(const std::string& what, const Call& call) {
  for (int attempt = 0; attempt < kTriesMax; ++attempt) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kCallTimeout);
    const grpc::Status status = call(context);
    if (status.ok() || !HandleFailure(what, status)) return;
  }
  ADD_FAILURE() << what << " was refused " << kTriesMax << " times";
}

std::string Script::Submit(const std::string& request_id) {
  v1::CreateJobRequest request;
  request.set_request_id(request_id);
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_name("durable");
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(1);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  v1::Job job;
  Insist("submit", [&](grpc::ClientContext& context) {
    return yard_->jobs().CreateJob(&context, request, &job);
  });
  const auto [known, is_new] = acknowledged_.emplace(request_id, job);
  EXPECT_EQ(known->second.uid(), job.uid()) << request_id << " gave another job";
  EXPECT_EQ(known->second.name(), job.name());
  if (is_new) row_.Count("acknowledged jobs", 1);
  return job.name();
}

void Script::Cancel(const std::string& name) {
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::Job job;
  Insist("cancel", [&](grpc::ClientContext& context) {
    return yard_->jobs().CancelJob(&context, request, &job);
  });
}

void Script::Register() {
  v1::RegisterWorkerRequest request;
  request.set_worker("fake");
  request.set_uid("fake-1");
  request.set_version("1.0");
  v1::Device* device = request.add_devices();
  device->set_name("cpu-0");
  device->set_type("cpu");
  device->set_health(v1::DEVICE_HEALTH_OK);
  v1::RegisterWorkerResponse response;
  Insist("register", [&](grpc::ClientContext& context) {
    return agents_->RegisterWorker(&context, request, &response);
  });
  session_ = response.session();
  sequence_ = 0;
  desired_revision_ = 0;
}

v1::SyncWorkerResponse Script::Sync(bool waits) {
  v1::SyncWorkerResponse response;
  Insist("sync", [&](grpc::ClientContext& context) {
    v1::SyncWorkerRequest request;
    request.set_session(session_);
    request.set_sequence(++sequence_);
    if (waits) {
      request.set_desired_revision(desired_revision_);
      request.mutable_max_wait()->set_seconds(1);
    }
    for (const auto& [name, attempt] : observed_) *request.add_attempts() = attempt;
    return agents_->SyncWorker(&context, request, &response);
  });
  desired_revision_ = response.desired_revision();
  return response;
}

v1::DesiredAttempt Script::Await(const std::string& job, v1::DesiredAttempt::Action action) {
  v1::DesiredAttempt found;
  bool waits = false;
  const bool came = WaitUntil(
      [&] {
        const v1::SyncWorkerResponse response = Sync(std::exchange(waits, true));
        for (const v1::DesiredAttempt& desired : response.attempts()) {
          if (!absl::StartsWith(desired.attempt(), job + "/") || desired.action() != action) {
            continue;
          }
          found = desired;
          return true;
        }
        return ::testing::Test::HasFailure();
      },
      kPatience);
  EXPECT_TRUE(came) << job << " never got " << v1::DesiredAttempt::Action_Name(action);
  return found;
}

void Script::Observe(const v1::DesiredAttempt& attempt, v1::ObservedState state) {
  v1::ObservedAttempt& observed = observed_[attempt.attempt()];
  observed.set_attempt(attempt.attempt());
  observed.set_fencing_token(attempt.fencing_token());
  observed.set_state(state);
  observed.mutable_progress()->set_step(kCheckpointStep);
  Sync();
}

void Script::End(const v1::DesiredAttempt& attempt, v1::AttemptOutcome::Kind kind) {
  v1::ObservedAttempt& observed = observed_[attempt.attempt()];
  observed.mutable_outcome()->set_kind(kind);
  observed.mutable_outcome()->set_step(kCheckpointStep);
  observed.set_drained(true);
  Observe(attempt, v1::OBSERVED_STATE_EXITED);
  observed_.erase(attempt.attempt());
  Sync();
}

void Script::SendStreams(const v1::DesiredAttempt& attempt) {
  v1::AppendResponse response;
  const std::string text = kLog;
  for (const size_t offset : {size_t{0}, kLogSplit}) {
    v1::AppendLogRequest request;
    request.set_attempt(attempt.attempt());
    request.set_fencing_token(attempt.fencing_token());
    request.set_offset(static_cast<int64_t>(offset));
    request.set_data(offset == 0 ? text.substr(0, kLogSplit) : text.substr(kLogSplit));
    Insist("log", [&](grpc::ClientContext& context) {
      request.set_session(session_);
      return agents_->AppendLog(&context, request, &response);
    });
  }
  for (int64_t step = 1; step <= kPoints; ++step) {
    v1::AppendMetricsRequest request;
    request.set_attempt(attempt.attempt());
    request.set_fencing_token(attempt.fencing_token());
    request.set_offset((step - 1) * kPointBytes);
    request.set_end_offset(step * kPointBytes);
    v1::MetricPoint* point = request.add_points();
    point->set_step(step);
    point->set_name("train.loss");
    point->set_value(1.0 / static_cast<double>(step));
    Insist("metrics", [&](grpc::ClientContext& context) {
      request.set_session(session_);
      return agents_->AppendMetrics(&context, request, &response);
    });
  }
}

void Script::SendFiles(const v1::DesiredAttempt& attempt) {
  for (const v1::CheckpointFile& file : CheckpointFiles()) {
    const std::string content = Content(file.name());
    v1::AppendCheckpointFileRequest request;
    request.set_attempt(attempt.attempt());
    request.set_fencing_token(attempt.fencing_token());
    request.set_step(kCheckpointStep);
    *request.mutable_file() = file;
    size_t sent = 0;
    while (sent < content.size() && !::testing::Test::HasFailure()) {
      v1::AppendResponse response;
      Insist("checkpoint file", [&](grpc::ClientContext& context) {
        request.set_session(session_);
        request.set_offset(static_cast<int64_t>(sent));
        request.set_data(content.substr(sent, content.size() / 2));
        grpc::Status status = agents_->AppendCheckpointFile(&context, request, &response);
        // The script begins again, as real workers do, where the server has less than it had.
        if (IsOffsetMismatch(status)) sent = 0;
        return status;
      });
      sent = static_cast<size_t>(response.next_offset());
    }
  }
}

void Script::SendCheckpoint(const v1::DesiredAttempt& attempt) {
  SendFiles(attempt);
  v1::CommitCheckpointRequest request;
  request.set_attempt(attempt.attempt());
  request.set_fencing_token(attempt.fencing_token());
  request.set_step(kCheckpointStep);
  for (const v1::CheckpointFile& file : CheckpointFiles()) *request.add_files() = file;
  v1::CommitCheckpointResponse response;
  bool is_incomplete = false;
  Insist("commit", [&](grpc::ClientContext& context) {
    if (is_incomplete) SendFiles(attempt);
    request.set_session(session_);
    grpc::Status status = agents_->CommitCheckpoint(&context, request, &response);
    is_incomplete = IsOffsetMismatch(status);
    return status;
  });
}

void Script::Run() {
  const std::string finished = Submit(kFinished);
  const std::string stopped = Submit(kStopped);
  const std::string waiting = Submit(kNeverPlaced);
  if (::testing::Test::HasFailure()) return;
  Register();
  const v1::DesiredAttempt first = Await(finished, v1::DesiredAttempt::RUN);
  Observe(first, v1::OBSERVED_STATE_RUNNING);
  SendStreams(first);
  Cancel(waiting);
  SendCheckpoint(first);
  End(first, v1::AttemptOutcome::SUCCEEDED);
  const v1::DesiredAttempt second = Await(stopped, v1::DesiredAttempt::RUN);
  Observe(second, v1::OBSERVED_STATE_RUNNING);
  Cancel(stopped);
  Await(stopped, v1::DesiredAttempt::STOP);
  End(second, v1::AttemptOutcome::STOPPED);
}

void Script::Verify() {
  shim_.Disarm();
  // A restart shows that nothing is only in the memory of the server.
  Restart();
  if (::testing::Test::HasFailure()) return;
  VerifyJobs();
  VerifyStreams(acknowledged_[kFinished].name());
  VerifyCheckpoint(acknowledged_[kFinished].name());
  yard_->KillServer();
  VerifyDatabases();
}

void Script::VerifyJobs() {
  const std::map<std::string, v1::Job> acknowledged = acknowledged_;
  for (const auto& [request_id, job] : acknowledged) Submit(request_id);
  v1::ListJobsResponse all;
  Insist("list", [&](grpc::ClientContext& context) {
    return yard_->jobs().ListJobs(&context, v1::ListJobsRequest(), &all);
  });
  std::set<std::string> names;
  for (const v1::Job& job : all.jobs()) names.insert(job.name());
  for (size_t number = 1; number <= acknowledged.size(); ++number) {
    EXPECT_TRUE(names.contains(absl::StrCat("jobs/", number))) << "a number was left out";
  }
  for (const auto& [request_id, job] : acknowledged) {
    const bool is_there = names.contains(job.name());
    EXPECT_TRUE(is_there) << job.name() << " was acknowledged";
    row_.Count("lost", is_there ? 0 : 1);
  }
  EXPECT_EQ(names.size(), acknowledged.size());
  row_.Count("doubled",
             static_cast<int64_t>(names.size()) - static_cast<int64_t>(acknowledged.size()));
  const auto expect = [&](const char* request_id, v1::JobState state, int attempts) {
    const v1::Job job = yard_->GetJob(acknowledged.at(request_id).name());
    EXPECT_EQ(job.state(), state) << job.ShortDebugString();
    EXPECT_EQ(job.attempt(), attempts) << "nothing runs twice";
  };
  expect(kFinished, v1::JOB_STATE_SUCCEEDED, 1);
  expect(kStopped, v1::JOB_STATE_CANCELLED, 1);
  expect(kNeverPlaced, v1::JOB_STATE_CANCELLED, 0);
}

void Script::VerifyStreams(const std::string& job) {
  const std::vector<v1::MetricPoint> points = yard_->Metrics(job, "train.loss");
  EXPECT_EQ(points.size(), static_cast<size_t>(kPoints));
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].step(), static_cast<int64_t>(i + 1)) << "a point was lost or doubled";
  }
  grpc::ClientContext context;
  rpc::SetTimeout(context, kCallTimeout);
  v1::TailLogsRequest request;
  request.set_name(job);
  const auto stream = yard_->jobs().TailLogs(&context, request);
  std::string log;
  v1::TailLogsResponse response;
  while (stream->Read(&response)) log += response.data();
  EXPECT_EQ(log, kLog);
}

void Script::VerifyCheckpoint(const std::string& job) {
  for (const v1::CheckpointFile& file : CheckpointFiles()) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kCallTimeout);
    v1::DownloadCheckpointRequest request;
    request.set_name(absl::StrCat(job, "/checkpoints/", kCheckpointStep));
    request.set_file(file.name());
    const auto stream = checkpoints_->DownloadCheckpoint(&context, request);
    std::string content;
    v1::DownloadCheckpointResponse response;
    while (stream->Read(&response)) content += response.data();
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(content, Content(file.name()));
  }
}

void Script::VerifyDatabases() {
  for (const char* name : {"trainyard.db", "metrics.db"}) {
    const auto database = store::Database::Open(JoinPath(yard_->server_state_dir(), name),
                                                store::Database::Mode::kDurable);
    ASSERT_TRUE(database.ok()) << database.status();
    EXPECT_EQ(Query(**database, "PRAGMA integrity_check"), "ok");
    if (absl::string_view(name) != "trainyard.db") continue;
    EXPECT_EQ(Query(**database, "SELECT MAX(sequence) - COUNT(*) FROM events"), "0")
        << "the history has a gap";
  }
}

}  // namespace trainyard::testing
