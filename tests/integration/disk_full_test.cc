// Fills the disk of a worker under a job. The job goes on, says what waits, and needs nobody's help
// once there is space again.
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "tests/integration/yard.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

bool HasEvent(Yard& yard, const std::string& job, const std::string& type) {
  return absl::StrContains(yard.Cli({"show", job, "--events"}).out, type);
}

class DiskFull : public ::testing::Test {
 protected:
  // Runs a job on a worker whose state is on the small disk, until it has a checkpoint.
  void Begin() {
    auto disk = SmallDisk::Mount(folder_.path(), "size=16m");
    if (absl::IsUnavailable(disk.status())) GTEST_SKIP() << disk.status().message();
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    ASSERT_EQ(symlink(disk_->path().c_str(), yard_.WorkerStateDir().c_str()), 0);
    yard_.Start();
    job_ = yard_.Submit(SmallSpec("long", 1, 100'000, 1000, "checkpoint: {every: 50 steps}\n"));
    ASSERT_TRUE(yard_.WaitForJob(
        job_, [](const Job& job) { return job.progress().checkpoint_step() > 0; }));
  }
  // Keeps the disk full until the predicate holds for the job.
  bool FillUntil(const std::function<bool(const Job&)>& predicate) {
    return WaitUntil(
        [&] {
          disk_->FillSpace();
          return predicate(yard_.GetJob(job_));
        },
        kPatience);
  }

  TempDir folder_;
  std::unique_ptr<SmallDisk> disk_;
  Yard yard_;
  std::string job_;
};

TEST_F(DiskFull, TheTrainingGoesOnAndHealsByItself) {
  Begin();
  if (disk_ == nullptr) return;
  ASSERT_TRUE(FillUntil([](const Job& job) { return !job.progress().disk_full().empty(); }));
  const int64_t step = yard_.GetJob(job_).progress().step();
  // This is longer than a rank may say nothing.
  EXPECT_TRUE(FillUntil([&](const Job& job) { return job.progress().step() >= step + 2000; }));
  const Job full = yard_.GetJob(job_);
  EXPECT_EQ(full.attempt(), 1);
  EXPECT_EQ(full.state(), v1::JOB_STATE_RUNNING);
  EXPECT_NE(full.progress().disk_full(), "");
  EXPECT_TRUE(HasEvent(yard_, job_, "DISK_FULL"));
  EXPECT_TRUE(absl::StrContains(yard_.Cli({"show", job_}).out, "no space left"));
  const int64_t kept = full.progress().checkpoint_step();
  EXPECT_GT(kept, 0);

  disk_->Free();
  EXPECT_TRUE(yard_.WaitForJob(job_, [&](const Job& job) {
    return job.progress().checkpoint_step() > kept && job.progress().disk_full().empty();
  }));
  EXPECT_EQ(yard_.GetJob(job_).attempt(), 1);
  EXPECT_TRUE(HasEvent(yard_, job_, "DISK_FREE"));
  const int64_t last = yard_.GetJob(job_).progress().step();
  ASSERT_TRUE(yard_.WaitForStep(job_, last));
  int64_t next = 1;
  for (const v1::MetricPoint& point : yard_.Metrics(job_, "train.loss")) {
    ASSERT_EQ(point.step(), next++) << "no point is lost or doubled";
  }
  EXPECT_GT(next, last);
}

TEST_F(DiskFull, AJobCanBeCancelledMeanwhile) {
  Begin();
  if (disk_ == nullptr) return;
  ASSERT_TRUE(FillUntil([](const Job& job) { return !job.progress().disk_full().empty(); }));
  EXPECT_EQ(yard_.Cli({"cancel", job_}).exit_code, 0);
  EXPECT_EQ(yard_.WaitForEnd(job_).state(), v1::JOB_STATE_CANCELLED);
}

}  // namespace
}  // namespace trainyard::testing
