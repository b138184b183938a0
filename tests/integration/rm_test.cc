// Tests the deletion of jobs: their data is gone from the server, but data that other jobs need
// stays.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

TEST(Remove, AJobGoesWithAllThatItHad) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("first", 1, 1, 1000));
  ASSERT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string other = yard.Submit(SmallSpec("second", 1, 1, 1000));
  ASSERT_EQ(yard.WaitForEnd(other).state(), v1::JOB_STATE_SUCCEEDED);

  const auto preview = yard.CliJson({"rm", "1", "--dry-run"});
  ASSERT_EQ(preview.size(), 1u);
  EXPECT_NE(preview[0].value("checkpoints", 0), 0);
  EXPECT_NE(preview[0].value("log_bytes", 0), 0);
  EXPECT_NE(preview[0].value("metric_points", 0), 0);
  ASSERT_EQ(yard.Cli({"show", "1"}).exit_code, 0);

  const ProcessResult removed = yard.Cli({"rm", "1"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_TRUE(absl::StrContains(removed.err, "jobs/1 is deleted")) << removed.err;
  EXPECT_EQ(yard.Cli({"show", "1"}).exit_code, 3);
  EXPECT_EQ(yard.Cli({"logs", "1"}).exit_code, 3);
  EXPECT_EQ(yard.Cli({"checkpoints", "ls", "1"}).exit_code, 3);
  EXPECT_EQ(yard.Cli({"ls", "-a", "-o", "name"}).out, "jobs/2\n");
  EXPECT_EQ(yard.CliJson({"checkpoints", "ls", "2"}).empty(), false);
  EXPECT_EQ(yard.Cli({"rm", "1"}).exit_code, 0);
}

TEST(Remove, CheckpointsMayGoAlone) {
  Yard yard;
  yard.Start();
  ASSERT_EQ(yard.WaitForEnd(yard.Submit(SmallSpec("first", 1, 1, 1000))).state(),
            v1::JOB_STATE_SUCCEEDED);
  const ProcessResult removed = yard.Cli({"rm", "1", "--checkpoints"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_TRUE(yard.CliJson({"checkpoints", "ls", "1"}).empty());
  EXPECT_EQ(yard.Cli({"show", "1"}).exit_code, 0);
}

TEST(Remove, JobsThatEndedLongAgoGoByThemselvesAndOthersStay) {
  Yard::Options options;
  options.cpu_devices = 1;
  options.server_flags = {"--keep_jobs", "1s"};
  Yard yard(options);
  yard.Start();
  const std::string tagged = yard.Submit(SmallSpec("tagged", 1, 1, 500, "retain: forever\n"));
  ASSERT_EQ(yard.WaitForEnd(tagged).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string waits = yard.Submit(SmallSpec("waits", 2, 1, 500), {"--wait-for-devices"});
  const std::string ended = yard.Submit(SmallSpec("ended", 1, 1, 500));
  EXPECT_TRUE(WaitUntil([&] { return yard.Cli({"show", ended}).exit_code == 3; }, kPatience));
  // The files go after the commit.
  const std::string logs = absl::StrCat(yard.server_state_dir(), "/logs/3");
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(logs); }, kPatience));
  EXPECT_EQ(yard.GetJob(tagged).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.GetJob(waits).state(), v1::JOB_STATE_QUEUED);
}

TEST(Remove, PartsGoByThemselvesAndUsageTellsWhatIsLeft) {
  Yard::Options options;
  options.cpu_devices = 1;
  options.server_flags = {"--keep_logs", "1s", "--keep_metrics", "0 jobs"};
  Yard yard(options);
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("first", 1, 1, 500));
  ASSERT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(WaitUntil([&] { return yard.GetJob(job).deleted_parts_size() == 2; }, kPatience));
  const std::string logs = absl::StrCat(yard.server_state_dir(), "/logs/1");
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(logs); }, kPatience));
  EXPECT_TRUE(absl::StrContains(yard.Cli({"logs", "1"}).err, "were deleted"));
  EXPECT_TRUE(absl::StrContains(yard.Cli({"metrics", "1"}).err, "were deleted"));
  EXPECT_FALSE(yard.GetJob(job).final_metrics().empty());
  const auto usage = yard.CliJson({"usage"});
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].value("jobs", 0), 1);
  EXPECT_NE(usage[0]["stored"].value("checkpoints", 0), 0);
  EXPECT_FALSE(usage[0]["stored"].contains("logs"));
  EXPECT_EQ(yard.CliJson({"usage", "--largest", "5"}).size(), 1u);
}

TEST(Remove, AJobThatHasNotEndedIsRefused) {
  Yard::Options options;
  options.cpu_devices = 1;
  Yard yard(options);
  yard.Start();
  // The second device never comes.
  yard.Submit(SmallSpec("waits", 2, 1, 1000), {"--wait-for-devices"});
  const ProcessResult refused = yard.Cli({"rm", "1"});
  EXPECT_EQ(refused.exit_code, 6) << refused.err;
  EXPECT_TRUE(absl::StrContains(refused.err, "cancel")) << refused.err;
  ASSERT_EQ(yard.Cli({"cancel", "1"}).exit_code, 0);
  EXPECT_EQ(yard.Cli({"rm", "1"}).exit_code, 0);
}

}  // namespace
}  // namespace trainyard::testing
