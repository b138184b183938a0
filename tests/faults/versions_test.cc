// Runs programs of an older commit beside those of today, as they meet while a pool is upgraded:
// first the server, then the workers, at last the clients. A running job notices nothing.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/faults/report.h"
#include "tests/faults/witness.h"
#include "tests/integration/traces.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

// The commit is of 2026-11-21. Its store is of version 4; its server cannot delete jobs, look for
// damaged checkpoints, or leave the precision to the device.
constexpr char kOldCommit[] = "f8436b908932f317dd555ae884b15a6a360893e9";
constexpr int kNoCommit = 3;  // the exit code of the script
constexpr absl::Duration kBuildWithin = absl::Minutes(50);
constexpr int kEndless = 100'000;  // epochs: it trains until it is cancelled

class Versions : public ::testing::Test {
 protected:
  Versions() : yard_(Options()) {}

  Yard::Options Options() const {
    Yard::Options options;
    options.cpu_devices = 2;
    options.worker_flags = {"--share_cpus", "--trainer", witness_.trainer()};
    return options;
  }

  // Builds the old programs, or takes those of an earlier run. Skips the test where neither can be.
  void BuildOld() {
    old_ = SourcePath(absl::StrCat("build/old/", kOldCommit));
    if (FileExists(JoinPath(old_, "done"))) return;
    LONG_LANE_ONLY();
    Process::Options build;
    build.args = {SourcePath("scripts/build_old.sh"), kOldCommit};
    const auto built = RunProcess(std::move(build), scratch_.path(), kBuildWithin);
    ASSERT_TRUE(built.ok()) << built.status();
    if (built->exit_code == kNoCommit) GTEST_SKIP() << built->err;
    ASSERT_EQ(built->exit_code, 0) << built->err;
  }
  void UseOld(const std::string& name) {
    yard_.UseProgram(name, JoinPath(old_, absl::StrCat("bin/", name)));
  }
  void UseNew(const std::string& name) { yard_.UseProgram(name, Yard::Binary(name)); }

  void ExpectProgress(const std::string& job) {
    const int64_t step = yard_.GetJob(job).progress().step();
    ASSERT_TRUE(yard_.WaitForStep(job, step + 50));
    EXPECT_EQ(yard_.GetJob(job).attempt(), 1);
  }

  TempDir scratch_;
  Witness witness_;
  Yard yard_;
  std::string old_;
};

TEST_F(Versions, AnUpgradeInTheMiddleOfATrainingLosesNothing) {
  FaultRow row({.fault = "old versions meet new ones",
                .injection = "server, worker and client of the commit of 2026-11-21, of which the "
                             "server is replaced first, then the worker, while a job trains",
                .expectation = "the old store opens; old worker and old client work with the new "
                               "server; the attempt goes on; no step lost, no point doubled"});
  BuildOld();
  if (HasFatalFailure() || IsSkipped()) return;
  for (const char* name : {"trainyard", "trainyard-server", "trainyard-worker"}) UseOld(name);
  yard_.Start();
  const std::string ended = yard_.Submit(SmallSpec("ended", 1, 2, 2000));
  ASSERT_EQ(yard_.WaitForEnd(ended).state(), v1::JOB_STATE_SUCCEEDED);
  const Trace before = TraceOf(yard_, ended);
  const std::string job =
      yard_.Submit(SmallSpec("long", 2, kEndless, 2000, "checkpoint: {every: 200 steps}\n"));
  ASSERT_TRUE(yard_.WaitForStep(job, 50));

  yard_.KillServer();
  UseNew("trainyard-server");
  yard_.StartServer();
  ExpectProgress(job);
  // Both clients read what the old server has stored.
  for (const bool is_new : {false, true}) {
    if (is_new) UseNew("trainyard");
    const ProcessResult listed = yard_.Cli({"ls", "-a"});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    EXPECT_TRUE(absl::StrContains(listed.out, "ended")) << listed.out;
    const Trace after = TraceOf(yard_, ended);
    EXPECT_EQ(after.losses, before.losses);
    EXPECT_TRUE(after.weights == before.weights);
    const std::string waits = yard_.Submit(SmallSpec("waits", 2, 1, 500));
    EXPECT_EQ(yard_.Cli({"cancel", waits}).exit_code, 0);
    EXPECT_EQ(yard_.WaitForEnd(waits).state(), v1::JOB_STATE_CANCELLED);
  }
  // The new worker adopts the ranks and the supervisor of the old one.
  yard_.KillWorker();
  UseNew("trainyard-worker");
  yard_.StartWorker();
  ExpectProgress(job);

  EXPECT_EQ(yard_.Cli({"cancel", job}).exit_code, 0);
  const Job last = yard_.WaitForEnd(job);
  EXPECT_EQ(last.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(last.attempt(), 1);
  std::map<int64_t, int> times;
  int64_t doubled = 0;
  for (const v1::MetricPoint& point : yard_.Metrics(job, "train.loss")) {
    if (++times[point.step()] > 1) ++doubled;
  }
  ASSERT_FALSE(times.empty());
  const int64_t lost = times.rbegin()->first - static_cast<int64_t>(times.size());
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(doubled, 0);
  // A new job runs on all that is new.
  const std::string fresh = yard_.Submit(SmallSpec("fresh", 2, 1, 500));
  EXPECT_EQ(yard_.WaitForEnd(fresh).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(witness_.StartedTwice(), 0);
  row.Count("programs replaced", 3);
  row.Count("attempts", last.attempt());
  row.Count("steps", static_cast<int64_t>(times.size()));
  row.Count("steps lost", lost);
  row.Count("points doubled", doubled);
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
