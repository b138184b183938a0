// Tests a rank that is stuck: it is named within half a minute, and in the end the result shows no
// trace of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/env.h"
#include "tests/faults/report.h"
#include "tests/integration/traces.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kStepsOfEpoch = 80;

std::string LongSpec(const std::string& name, int epochs, const std::string& extra) {
  // More replicas than ranks, so that they can move from rank to rank and leave no trace.
  return absl::StrReplaceAll(
      SmallSpec(name, /*devices=*/2, epochs, 4000, absl::StrCat("max_retries: 20\n", extra)),
      {{"global_batch: 50", "global_batch: 50, replicas: 8, reproducibility: bitwise"}});
}

TEST(Failure, AStoppedRankIsNamedWithItsStackAndTheJobGoesOnWithTheSameCurve) {
  FaultRow row({.fault = "a rank is stopped",
                .injection = "SIGSTOP of one rank of two in the middle of training",
                .expectation = "the rank, its collective and the step are named within 30 s, with "
                               "the stacks; the same losses and weights in the end"});
  // The rank is stopped neither in an evaluation, nor at a checkpoint or the end, because ranks
  // wait longer there. Ranks report their steps once a second, in which a quiet machine makes a
  // hundred of this network, so several times as many must follow.
  constexpr int kEpochs = 16;
  constexpr int kStep = 620;
  constexpr char kRarely[] = "checkpoint: {every: 600 steps}\nevaluate: {every: 1000 epochs}\n";
  const auto spec = [&](const std::string& name) {
    return absl::StrReplaceAll(LongSpec(name, kEpochs, kRarely),
                               {{"channels: [16, 32]", "channels: [48, 64]"}});
  };
  Yard yard;
  yard.Start();
  const std::string plain = yard.Submit(spec("plain"));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string job = yard.Submit(spec("stopped"));
  ASSERT_TRUE(yard.WaitForStep(job, kStep));
  const auto record = yard.SupervisorRecord(yard.RunDir(job, 1));
  ASSERT_TRUE(record.contains("ranks")) << record;
  const absl::Duration begin = Clock::Real()->Uptime();
  kill(record["ranks"][1]["pid"].get<pid_t>(), SIGSTOP);
  // The run directory goes once the server has all of it, so the job tells what became of it.
  v1::Failure failure;
  ASSERT_TRUE(yard.WaitForJob(job, [&failure](const Job& seen) {
    failure = seen.failure();
    return seen.state() == v1::JOB_STATE_QUEUED;
  }));
  const absl::Duration took = Clock::Real()->Uptime() - begin;
  EXPECT_LT(took, absl::Seconds(30));
  EXPECT_EQ(failure.failure_class(), v1::FAILURE_CLASS_TRANSIENT);
  EXPECT_EQ(failure.reason(), "RANK_STUCK");
  EXPECT_THAT(failure.message(),
              ::testing::ContainsRegex("rank 1 is stuck: step [0-9]+, bucket [0-9]+: rank 0: "
                                       "[a-z_]+ [0-9]+: rank 1 did not take part within"));
  EXPECT_THAT(failure.message(), ::testing::HasSubstr("is stopped by a signal (T)"));
  ASSERT_TRUE(yard.WaitForJob(job, [](const Job& seen) { return seen.attempt() == 2; }));
  EXPECT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.GetJob(job).retries(), 1);
  const ProcessResult log = yard.Cli({"logs", absl::StrCat(job, "/attempts/1"), "--rank", "1"});
  EXPECT_TRUE(absl::StrContains(log.out, "==== stacks of rank 1 ")) << log.out << log.err;
  const Trace trace = TraceOf(yard, job);
  ExpectNoTrace(trace, TraceOf(yard, plain), kEpochs * kStepsOfEpoch);
  row.Longest("named, and all gone, after", took);
  row.Count("steps", static_cast<int64_t>(trace.losses.size()));
  row.Count("losses that differ", trace.different);
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
