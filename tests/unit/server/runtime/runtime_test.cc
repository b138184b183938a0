// Tests the writer with its thread, over a store in which a test can delay commits or make them
// fail.
#include "server/runtime/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "common/base/errors.h"
#include "server/store/memory_store.h"
#include "tests/testing/manual_clock.h"
#include "tests/unit/server/runtime/flag.h"
#include "tests/unit/server/runtime/inputs.h"

namespace trainyard::runtime {
namespace {

using testing::RegisterWorker;
using testing::SubmitJob;

// A store in memory in which a test can delay commits or make them fail.
class TestStore : public store::Store {
 public:
  absl::StatusOr<core::Snapshot> Load() override {
    const MutexLock lock(&mutex_);
    return store_.Load();
  }
  absl::Status Commit(const core::Delta& delta) override {
    const MutexLock lock(&mutex_);
    ++commits_;
    changed_.SignalAll();
    while (is_held_) changed_.Wait(&mutex_);
    if (!failure_.ok()) return failure_;
    return store_.Commit(delta);
  }
  absl::StatusOr<std::vector<core::EventRecord>> ListEvents(absl::string_view parent, int64_t after,
                                                            int64_t limit) override {
    const MutexLock lock(&mutex_);
    return store_.ListEvents(parent, after, limit);
  }

  void Hold(bool is_held) {
    const MutexLock lock(&mutex_);
    is_held_ = is_held;
    changed_.SignalAll();
  }
  void Fail(absl::Status status) {
    const MutexLock lock(&mutex_);
    failure_ = std::move(status);
  }
  // Waits until this many commits have begun.
  void AwaitCommits(int count) {
    const MutexLock lock(&mutex_);
    while (commits_ < count) changed_.Wait(&mutex_);
  }
  int commits() {
    const MutexLock lock(&mutex_);
    return commits_;
  }

 private:
  store::MemoryStore store_;
  Mutex mutex_;
  CondVar changed_;
  bool is_held_ = false;
  int commits_ = 0;
  absl::Status failure_;
};

// The answer to one call.
template <typename T>
struct Answer {
  testing::Flag came;
  std::optional<absl::StatusOr<T>> value;

  std::function<void(absl::StatusOr<T>)> Taker() {
    return [this](absl::StatusOr<T> got) {
      value = std::move(got);
      came.Raise();
    };
  }
  // The status is moved, because the counters in a copied one are in Debian's library, which the
  // thread sanitizer does not see.
  absl::StatusOr<T> Take() {
    came.Await();
    return *std::move(value);
  }
  const absl::StatusOr<T>& Wait() {
    came.Await();
    return *value;
  }
};

class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.on_fatal = [this](const absl::Status& status) { fatal_ = status; };
  }
  void Start() {
    auto runtime = Runtime::Start(options_, store_, clock_, board_);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }

  // Registers the worker under the session s1, and has it wait for something to do. Returns the
  // revision that it has.
  int64_t LetWorkerWait(Answer<DesiredState>& waiting) {
    EXPECT_TRUE(Post(RegisterWorker("s1")).ok());
    const int64_t revision = Sync(Report("s1", 1, 0), absl::Seconds(5))->revision;
    runtime_->Sync(Report("s1", 2, revision), absl::Seconds(5), waiting.Taker());
    return revision;
  }
  static core::SyncReport Report(const std::string& session, int64_t sequence, int64_t revision) {
    core::SyncReport report;
    report.session = session;
    report.sequence = sequence;
    report.desired_revision = revision;
    return report;
  }

  absl::StatusOr<core::Reply> Post(core::Input input) {
    Answer<core::Reply> answer;
    runtime_->Post(std::move(input), answer.Taker());
    return answer.Take();
  }
  absl::StatusOr<DesiredState> Sync(core::SyncReport report, absl::Duration wait) {
    Answer<DesiredState> answer;
    runtime_->Sync(std::move(report), wait, answer.Taker());
    return answer.Take();
  }
  // Waits until the writer has done a turn, so that everything posted before has been processed.
  void Turn() {
    Answer<const core::Yard*> answer;
    runtime_->Read(answer.Taker());
    answer.Wait().IgnoreError();
  }

  TestStore store_;
  testing::ManualClock clock_;
  Notifier notifier_;
  Board board_{notifier_};
  Runtime::Options options_;
  absl::Status fatal_;
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(RuntimeTest, AnAcknowledgedInputIsInTheStoreAndOnTheBoard) {
  Start();
  const auto reply = Post(SubmitJob("a"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job, JobId{1});
  EXPECT_TRUE(store_.Load()->jobs.contains(JobId{1}));
  EXPECT_EQ(board_.FindJob(JobId{1})->record.submission->name, "a");
  EXPECT_EQ(board_.revision(), store_.Load()->revision);
}

TEST_F(RuntimeTest, RepliesOnlyAfterTheCommit) {
  Start();
  store_.Hold(true);
  Answer<core::Reply> answer;
  runtime_->Post(SubmitJob("a"), answer.Taker());
  store_.AwaitCommits(1);
  EXPECT_FALSE(answer.came.is_raised());
  EXPECT_EQ(board_.FindJob(JobId{1}), nullptr);
  store_.Hold(false);
  EXPECT_TRUE(answer.Wait().ok());
}

TEST_F(RuntimeTest, InputsThatWaitShareOneCommit) {
  Start();
  store_.Hold(true);
  Answer<core::Reply> first;
  runtime_->Post(SubmitJob("first"), first.Taker());
  store_.AwaitCommits(1);
  std::vector<Answer<core::Reply>> answers(20);
  for (auto& answer : answers) runtime_->Post(SubmitJob("more"), answer.Taker());
  store_.Hold(false);
  for (auto& answer : answers) EXPECT_TRUE(answer.Wait().ok());
  EXPECT_EQ(store_.commits(), 2);
}

TEST_F(RuntimeTest, ReadsSeeCommittedStateOnly) {
  Start();
  store_.Hold(true);
  Answer<core::Reply> posted;
  runtime_->Post(SubmitJob("a"), posted.Taker());
  Answer<const core::Yard*> read;
  runtime_->Read(read.Taker());
  store_.AwaitCommits(1);
  EXPECT_FALSE(read.came.is_raised());
  store_.Hold(false);
  EXPECT_TRUE(read.Wait().ok());
}

TEST_F(RuntimeTest, AFullDiskIsToldToAllOfTheTurnAndHealsByItself) {
  Start();
  ASSERT_TRUE(Post(SubmitJob("kept")).ok());
  store_.Fail(error::DiskFull("/state"));
  const auto refused = Post(SubmitJob("lost"));
  EXPECT_EQ(ErrorReason(refused.status()), "DISK_FULL");
  EXPECT_EQ(board_.FindJob(JobId{2}), nullptr);
  // A refusal by the yard keeps its own reason.
  EXPECT_EQ(Post(core::CancelJob{JobId{77}, "user:anna", ""}).status().code(),
            absl::StatusCode::kNotFound);
  store_.Fail(absl::OkStatus());
  const auto reply = Post(SubmitJob("after"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job, JobId{2});
  EXPECT_TRUE(fatal_.ok());
}

TEST_F(RuntimeTest, AnyOtherFailedCommitIsTheEnd) {
  Start();
  store_.Fail(absl::DataLossError("cannot sync"));
  EXPECT_EQ(Post(SubmitJob("a")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Post(SubmitJob("b")).status().code(), absl::StatusCode::kDataLoss);
  runtime_->Stop();
  EXPECT_EQ(fatal_.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_.commits(), 1);
}

TEST_F(RuntimeTest, AFullQueueRefusesAtOnce) {
  options_.queue_max = 2;
  Start();
  store_.Hold(true);
  Answer<core::Reply> first;
  runtime_->Post(SubmitJob("first"), first.Taker());
  store_.AwaitCommits(1);
  Answer<core::Reply> second, third;
  runtime_->Post(SubmitJob("second"), second.Taker());
  runtime_->Post(SubmitJob("third"), third.Taker());
  const auto refused = Post(SubmitJob("fourth"));
  EXPECT_EQ(ErrorReason(refused.status()), "SERVER_BUSY");
  EXPECT_TRUE(GetRetryDelay(refused.status()).has_value());
  store_.Hold(false);
  EXPECT_TRUE(third.Wait().ok());
}

TEST_F(RuntimeTest, ANewRuntimeTakesUpWhatTheStoreHolds) {
  Start();
  ASSERT_TRUE(Post(SubmitJob("a")).ok());
  runtime_.reset();
  Start();
  EXPECT_NE(board_.FindJob(JobId{1}), nullptr);
  EXPECT_EQ(Post(SubmitJob("b"))->job, JobId{2});
}

TEST_F(RuntimeTest, AWorkerWithNewsIsAnsweredAtOnce) {
  Start();
  ASSERT_TRUE(Post(RegisterWorker("s1")).ok());
  ASSERT_TRUE(Post(SubmitJob("a")).ok());
  const auto desired = Sync(Report("s1", 1, 0), absl::Seconds(5));
  ASSERT_TRUE(desired.ok()) << desired.status();
  ASSERT_EQ(desired->attempts.size(), 1u);
  EXPECT_EQ(desired->attempts[0].action, core::DesiredAction::kRun);
}

TEST_F(RuntimeTest, AWorkerWithoutNewsWaitsForThem) {
  Start();
  ASSERT_TRUE(Post(RegisterWorker("s1")).ok());
  const auto before = Sync(Report("s1", 1, 0), absl::Seconds(5));
  ASSERT_TRUE(before.ok()) << before.status();
  Answer<DesiredState> waiting;
  runtime_->Sync(Report("s1", 2, before->revision), absl::Seconds(5), waiting.Taker());
  Turn();
  EXPECT_FALSE(waiting.came.is_raised());
  ASSERT_TRUE(Post(SubmitJob("a")).ok());
  const auto& after = waiting.Wait();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GT(after->revision, before->revision);
  EXPECT_EQ(after->attempts.size(), 1u);
}

TEST_F(RuntimeTest, AWaitingWorkerIsAnsweredWhenItsTimeIsOver) {
  Start();
  Answer<DesiredState> waiting;
  const int64_t revision = LetWorkerWait(waiting);
  Turn();
  clock_.Advance(absl::Seconds(4));
  Turn();
  EXPECT_FALSE(waiting.came.is_raised());
  clock_.Advance(absl::Seconds(1));
  Turn();
  EXPECT_EQ(waiting.Wait()->revision, revision);
}

TEST_F(RuntimeTest, ASecondCallOfAWorkerAnswersTheFirst) {
  Start();
  ASSERT_TRUE(Post(RegisterWorker("s1")).ok());
  const int64_t revision = Sync(Report("s1", 1, 0), absl::Seconds(5))->revision;
  Answer<DesiredState> first, second;
  runtime_->Sync(Report("s1", 2, revision), absl::Seconds(5), first.Taker());
  runtime_->Sync(Report("s1", 2, revision), absl::Seconds(5), second.Taker());
  EXPECT_TRUE(first.Wait().ok());
  EXPECT_FALSE(second.came.is_raised());
  runtime_->Stop();
  EXPECT_EQ(second.Wait().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RuntimeTest, ANewSessionEndsTheWaitingOfTheOldOne) {
  Start();
  Answer<DesiredState> waiting;
  LetWorkerWait(waiting);
  ASSERT_TRUE(Post(RegisterWorker("s2")).ok());
  Turn();
  EXPECT_EQ(Sync(Report("s1", 3, 0), absl::Seconds(5)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(waiting.Wait().status()), "UNKNOWN_SESSION");
}

TEST_F(RuntimeTest, AFullDiskEndsTheWaitingOfWorkers) {
  Start();
  Answer<DesiredState> waiting;
  LetWorkerWait(waiting);
  Turn();
  store_.Fail(error::DiskFull("/state"));
  EXPECT_EQ(ErrorReason(Post(SubmitJob("lost")).status()), "DISK_FULL");
  EXPECT_EQ(ErrorReason(waiting.Wait().status()), "UNKNOWN_SESSION");
}

TEST_F(RuntimeTest, AWaitingWorkerNeverSeesWhatCouldNotBeCommitted) {
  Start();
  Answer<DesiredState> waiting;
  LetWorkerWait(waiting);
  Turn();
  store_.Fail(absl::DataLossError("cannot sync"));
  EXPECT_FALSE(Post(SubmitJob("lost")).ok());
  runtime_->Stop();
  EXPECT_EQ(waiting.Wait().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RuntimeTest, TimersRunWithoutInputs) {
  Start();
  ASSERT_TRUE(Post(RegisterWorker("s1")).ok());
  clock_.Advance(absl::Microseconds(options_.config.lease_us) + absl::Seconds(1));
  Turn();
  const auto worker = store_.Load()->workers.at("lab-1");
  EXPECT_EQ(core::worker_fsm::Name(worker.state), "UNREACHABLE");
}

TEST_F(RuntimeTest, AfterStopEverythingIsRefused) {
  Start();
  runtime_->Stop();
  EXPECT_EQ(Post(SubmitJob("late")).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace trainyard::runtime
