// Finds out who is to blame: a job that fails everywhere, a worker on which everything fails, or a
// learning rate.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "tests/faults/report.h"
#include "tests/faults/witness.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

Yard::Options With(const Witness& witness) {
  Yard::Options options;
  options.cpu_devices = 1;
  options.worker_flags = {"--share_cpus", "--trainer", witness.trainer()};
  return options;
}

TEST(Blame, AJobWhoseRankDiesOnTwoWorkersIsHeldForAPerson) {
  FaultRow row({.fault = "a job that kills what runs it",
                .injection = "its rank 0 dies of SIGSEGV on each worker",
                .expectation = "held after two workers; others run there"});
  LONG_LANE_ONLY();  // it waits for the pause before the second attempt
  const Witness witness("if [ $job = 1 ]; then kill -SEGV $$; fi");
  Yard yard(With(witness));
  yard.Start();
  yard.StartWorker("beta");
  ASSERT_TRUE(WaitUntil([&] { return yard.CliJson({"workers", "ls"}).size() == 2; }, kPatience));
  const std::string job = yard.Submit(SmallSpec("poison", 1, 1, 500));
  Job seen_last;
  ASSERT_TRUE(yard.WaitForJob(job, [&seen_last](const Job& seen) {
    seen_last = seen;
    return seen.state() == v1::JOB_STATE_QUEUED && seen.has_failure();
  })) << seen_last.ShortDebugString();
  // The job may be tried again on the same worker, unless that is not to be had.
  const std::string first = seen_last.placement(0).worker().substr(std::string("workers/").size());
  EXPECT_EQ(yard.Cli({"workers", "cordon", first}).exit_code, 0);
  Job held;
  ASSERT_TRUE(yard.WaitForJob(job, [&held](const Job& seen) {
    held = seen;
    return seen.state() == v1::JOB_STATE_SUSPENDED;
  })) << held.ShortDebugString();
  EXPECT_EQ(held.failure().failure_class(), v1::FAILURE_CLASS_POISON);
  EXPECT_EQ(held.attempt(), 2);
  const std::string other = yard.Submit(SmallSpec("other", 1, 1, 500));
  EXPECT_EQ(yard.WaitForEnd(other).state(), v1::JOB_STATE_SUCCEEDED);
  row.Count("attempts before it was held", held.attempt());
  row.Count("workers", 2);
  row.Survived();
}

TEST(Blame, AWorkerOnWhichThreeJobsFailIsDrainedAndOthersRunThem) {
  FaultRow row({.fault = "a worker on which each job fails",
                .injection = "every rank there dies at its start",
                .expectation = "drained at the third job, which runs elsewhere and is not "
                               "charged"});
  const Witness witness("case $TRAINYARD_RUN_DIR in */worker-alpha/*) kill -SEGV $$ ;; esac");
  Yard yard(With(witness));
  yard.Start();
  constexpr int kFailures = 2;
  for (int i = 0; i < kFailures; ++i) {
    const std::string job = yard.Submit(SmallSpec("unlucky", 1, 1, 500, "max_retries: 0\n"));
    EXPECT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_FAILED);
  }
  // The third failure is blamed on the worker and not on the job, which runs elsewhere.
  const std::string third = yard.Submit(SmallSpec("lucky", 1, 1, 500, "max_retries: 0\n"));
  ASSERT_TRUE(WaitUntil(
      [&] {
        return absl::StrContains(yard.Cli({"workers", "ls"}).out, "DRAINING");
      },
      kPatience));
  yard.StartWorker("beta");
  const Job ended = yard.WaitForEnd(third);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ended.attempt(), 2);
  row.Count("jobs failed before the drain", kFailures);
  row.Count("retries charged to the third", ended.retries());
  row.Survived();
}

TEST(Blame, ALossThatIsNotFiniteEndsTheJobAndIsNeverTheBest) {
  FaultRow row({.fault = "the loss is not finite",
                .injection = "a learning rate of 1000",
                .expectation = "FAILED at once with the step; no checkpoint has such weights"});
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(
      absl::StrReplaceAll(SmallSpec("diverges", 1, 4, 2000, "checkpoint: {every: 1 steps}\n"),
                          {{"lr: 0.05", "lr: 1000"}}));
  const Job ended = yard.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.failure().failure_class(), v1::FAILURE_CLASS_USER_ERROR);
  EXPECT_EQ(ended.failure().reason(), "LOSS_NOT_FINITE");
  EXPECT_TRUE(absl::StrContains(ended.failure().message(), "at step "))
      << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 1);
  row.Count("attempts", ended.attempt());
  row.Count("steps", ended.progress().step());
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
