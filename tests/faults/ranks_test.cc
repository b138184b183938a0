// Holds one thread of a rank, so that the rank lives and answers signals but skips its collective.
// The others notice it, name it, and the job goes on with the same losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_replace.h"
#include "common/base/env.h"
#include "tests/faults/report.h"
#include "tests/faults/witness.h"
#include "tests/integration/traces.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kEpochs = 24;
constexpr int kStepsOfEpoch = 80;
constexpr absl::Duration kNamedWithin = absl::Seconds(30);

// It neither evaluates nor writes checkpoints where the thread is held, since ranks wait longer
// there.
std::string Spec(const std::string& name) {
  return absl::StrReplaceAll(
      SmallSpec(name, /*devices=*/2, kEpochs, 4000,
                "checkpoint: {every: 600 steps}\nevaluate: {every: 1000 epochs}\n"),
      {{"global_batch: 50", "global_batch: 50, replicas: 8, reproducibility: bitwise"}});
}

// Stops one thread of another process as a debugger does, until the process is killed.
class HeldThread {
 public:
  explicit HeldThread(pid_t thread) {
    // Only the thread that attached may wait.
    tracer_ = std::thread([this, thread] {
      is_held_ = ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0 &&
                 ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0;
      is_decided_ = true;
      int status = 0;
      while (is_held_ && waitpid(thread, &status, __WALL) == thread && !WIFEXITED(status) &&
             !WIFSIGNALED(status)) {
      }
    });
  }
  ~HeldThread() { tracer_.join(); }
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;

  bool is_held() const {
    return WaitUntil([this] { return is_decided_.load(); }) && is_held_;
  }

 private:
  std::thread tracer_;
  std::atomic<bool> is_held_ = false;
  std::atomic<bool> is_decided_ = false;
};

TEST(Ranks, ARankThatSkipsACollectiveIsNamedAndTheJobGoesOnWithTheSameLosses) {
  FaultRow row({.fault = "a rank skips a collective",
                .injection = "the main thread of a rank is held by ptrace in the middle of "
                             "training",
                .expectation = "the rank, its collective and the step are named within 30 s; the "
                               "same losses and weights in the end"});
  LONG_LANE_ONLY();
  const Witness witness;
  Yard::Options options;
  options.worker_flags = {"--share_cpus", "--trainer", witness.trainer()};
  Yard yard(options);
  yard.Start();
  const std::string plain = yard.Submit(Spec("plain"));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string job = yard.Submit(Spec("held"));
  ASSERT_TRUE(yard.WaitForStep(job, 620));
  const auto record = yard.SupervisorRecord(yard.RunDir(job, 1));
  ASSERT_TRUE(record.contains("ranks")) << record;
  const absl::Duration begin = Clock::Real()->Uptime();
  v1::Failure failure;
  {
    const HeldThread held(record["ranks"][1]["pid"].get<pid_t>());
    if (!held.is_held()) GTEST_SKIP() << "ptrace is not permitted here";
    ASSERT_TRUE(yard.WaitForJob(job, [&failure](const Job& seen) {
      failure = seen.failure();
      return seen.state() == v1::JOB_STATE_QUEUED;
    }));
  }
  const absl::Duration took = Clock::Real()->Uptime() - begin;
  EXPECT_LT(took, kNamedWithin);
  EXPECT_EQ(failure.failure_class(), v1::FAILURE_CLASS_TRANSIENT);
  EXPECT_EQ(failure.reason(), "RANK_STUCK");
  EXPECT_THAT(failure.message(),
              ::testing::ContainsRegex("rank 1 is stuck: step [0-9]+, bucket [0-9]+: rank 0: "
                                       "[a-z_]+ [0-9]+: rank 1 did not take part within"));
  EXPECT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.GetJob(job).attempt(), 2);
  const Trace trace = TraceOf(yard, job);
  ExpectNoTrace(trace, TraceOf(yard, plain), kEpochs * kStepsOfEpoch);
  EXPECT_EQ(witness.Overlaps(), 0);
  row.Longest("named, and all gone, after", took);
  row.Count("attempts", yard.GetJob(job).attempt());
  row.Count("steps", static_cast<int64_t>(trace.losses.size()));
  row.Count("losses that differ", trace.different);
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
