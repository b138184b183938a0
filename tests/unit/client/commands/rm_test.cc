// Tests rm against the fake server: what it prints, asks, deletes and refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Remove : public ::testing::Test {
 protected:
  Remove() {
    server_.AddJob("done", v1::JOB_STATE_SUCCEEDED);
    server_.AddJob("running", v1::JOB_STATE_RUNNING);
    server_.AddJob("failed", v1::JOB_STATE_FAILED);
    server_.AddCheckpoint("jobs/1", 100, {{"model.safetensors", std::string(3000, 'm')}});
    server_.AddCheckpoint("jobs/1", 200, {{"model.safetensors", std::string(2000, 'm')}}, true);
    server_.AddLog("jobs/1", 0, std::string(1024, 'l'));
    server_.AddPoint("jobs/1", 1, "train.loss", 0.5);
  }
  bool IsThere(const std::string& job) { return runner_.Run({"show", job}).exit_code == 0; }

  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(Remove, DeletesWhatHasEndedAndTellsWhatItFreed) {
  const CommandResult result = runner_.Run({"rm", "1", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(HasSubstr("jobs/1 is deleted, 5.9 KiB freed"),
                                HasSubstr("jobs/3 is deleted, 0 B freed")));
  EXPECT_FALSE(IsThere("1"));
  EXPECT_FALSE(IsThere("3"));
  EXPECT_TRUE(IsThere("2"));
}

TEST_F(Remove, AJobThatRunsIsRefusedAndKeepsNoOtherBack) {
  const CommandResult result = runner_.Run({"rm", "1-3"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("error: jobs/2 is RUNNING"), HasSubstr("`trainyard cancel 2`")));
  EXPECT_FALSE(IsThere("1"));
  EXPECT_TRUE(IsThere("2"));
  EXPECT_FALSE(IsThere("3"));
}

TEST_F(Remove, ADryRunTellsAndDeletesNothing) {
  const CommandResult result = runner_.Run({"rm", "1", "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("JOB  CHECKPOINTS"), HasSubstr("4.9 KiB"), HasSubstr("1.0 KiB")));
  EXPECT_THAT(result.err, Not(HasSubstr("deleted")));
  EXPECT_TRUE(IsThere("1"));
}

TEST_F(Remove, APersonIsAskedWithWhatWouldBeFreed) {
  const CommandResult refused = runner_.Run({"rm", "1"}, "\n");
  EXPECT_EQ(refused.exit_code, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("4.9 KiB"), HasSubstr("delete 1 job for good? [y/N]"),
                                 HasSubstr("nothing was deleted")));
  EXPECT_TRUE(IsThere("1"));
  EXPECT_THAT(runner_.Run({"rm", "1"}, "y\n").err, HasSubstr("jobs/1 is deleted"));
  EXPECT_FALSE(IsThere("1"));
}

TEST_F(Remove, NobodyIsAskedAboutJobsThatCannotBeDeleted) {
  const CommandResult result = runner_.Run({"rm", "2"}, "y\n");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, Not(HasSubstr("[y/N]")));
}

TEST_F(Remove, YesAsksNothing) {
  const CommandResult result = runner_.Run({"rm", "1", "--yes"}, "n\n");
  EXPECT_THAT(result.err, Not(HasSubstr("[y/N]")));
  EXPECT_FALSE(IsThere("1"));
}

TEST_F(Remove, CheckpointsMayGoAlone) {
  server_.ChangeJob("jobs/1", [](v1::Job& job) { job.set_attempt(1); });
  const CommandResult result = runner_.Run({"rm", "1", "--checkpoints"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the checkpoints of jobs/1 are deleted, 4.9 KiB freed"));
  EXPECT_TRUE(IsThere("1"));
  EXPECT_THAT(runner_.Run({"checkpoints", "ls", "1"}).err, HasSubstr("has no checkpoint yet"));
  EXPECT_THAT(runner_.Run({"logs", "1"}).out, HasSubstr("lll"));
}

TEST_F(Remove, LogsAndMetricsMayGoAloneAndAreMissedWithAReason) {
  server_.ChangeJob("jobs/1", [](v1::Job& job) { job.set_attempt(1); });
  const CommandResult preview = runner_.Run({"rm", "1", "--logs", "--metrics"}, "n\n");
  EXPECT_THAT(preview.err, HasSubstr("delete the logs and metrics of 1 job for good? [y/N]"));
  const CommandResult result = runner_.Run({"rm", "1", "--logs", "--metrics"}, "y\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the logs and metrics of jobs/1 are deleted, 1.0 KiB freed"));
  EXPECT_THAT(runner_.Run({"logs", "1"}).err, AllOf(HasSubstr("the logs of jobs/1 were deleted"),
                                                    HasSubstr("`trainyard show 1 --events`")));
  EXPECT_THAT(runner_.Run({"metrics", "1"}).err, HasSubstr("the metrics of jobs/1 were deleted"));
  EXPECT_THAT(runner_.Run({"show", "1"}).out,
              AllOf(HasSubstr("deleted"), HasSubstr("metrics, but for the last values")));
}

TEST_F(Remove, WhatMetricsTakeIsFreedToo) {
  EXPECT_THAT(runner_.Run({"rm", "1", "--metrics"}).err,
              HasSubstr("the metrics of jobs/1 are deleted, 32 B freed"));
}

TEST_F(Remove, WhatOtherJobsNeedStaysAndIsTold) {
  server_.KeepOnDelete("jobs/1/checkpoints/200", /*spec=*/true);
  EXPECT_THAT(runner_.Run({"rm", "1", "--dry-run"}).out, HasSubstr("checkpoint 200, spec"));
  EXPECT_THAT(runner_.Run({"rm", "1"}).err,
              HasSubstr("4.0 KiB freed; other jobs need its checkpoint 200, spec"));
}

TEST_F(Remove, AJobThatWasDeletedBeforeIsFine) {
  runner_.Run({"rm", "1"});
  const CommandResult again = runner_.Run({"rm", "1"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("jobs/1 is deleted, 0 B freed"));
}

TEST_F(Remove, AJobThatNeverWasIsNotFound) {
  EXPECT_EQ(runner_.Run({"rm", "99"}).exit_code, 3);
}

TEST_F(Remove, DataIsPrintedAsAsked) {
  EXPECT_EQ(runner_.Run({"rm", "3", "-o", "name"}).out, "jobs/3\n");
  EXPECT_THAT(runner_.Run({"rm", "1", "-o", "json"}).out, HasSubstr("\"checkpoint_bytes\": 5000"));
}

}  // namespace
}  // namespace trainyard::testing
