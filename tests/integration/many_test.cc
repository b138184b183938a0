// Tests many jobs at once: arrays, files of many specs, and cancelling jobs that wait.
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

TEST(Many, TheJobsOfAnArrayTrainEachWithASeedOfItsOwn) {
  Yard yard;
  yard.Start();
  const std::string path = yard.File("job.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, SmallSpec("sweep", 1, 1, 500)).ok());
  const ProcessResult submitted = yard.Cli({"submit", path, "--array", "3%2"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_EQ(submitted.out, "jobs/1\n");
  std::set<double> losses;
  for (int i = 0; i < 3; ++i) {
    const Job job = yard.WaitForEnd(absl::StrCat("jobs/", i + 1));
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(job.resolved_spec().name(), absl::StrCat("sweep-", i));
    losses.insert(job.final_metrics().at("train.loss"));
  }
  EXPECT_EQ(losses.size(), 3u);  // no two began in the same way
  const ProcessResult listed = yard.Cli({"ls"});
  EXPECT_TRUE(absl::StrContains(listed.out, "1..3  sweep  [3 succeeded]")) << listed.out;
}

TEST(Many, WhatAFileOfManySpecsAsksForSurvivesTheServerAndIsCancelledAtOnce) {
  Yard yard;
  yard.StartServer();
  std::string documents;
  for (int i = 0; i < 500; ++i) {
    absl::StrAppend(&documents, "---\n", SmallSpec(absl::StrCat("job-", i), 1, 1, 500));
  }
  absl::StrAppend(&documents, "---\nname: wrong\n");
  const std::string path = yard.File("many.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, documents).ok());
  const ProcessResult submitted = yard.Cli({"submit", "-f", path});
  EXPECT_EQ(submitted.exit_code, 2);
  EXPECT_TRUE(absl::StrContains(submitted.err, "submitted 500 of 501 documents; 1 was refused"))
      << submitted.err;
  yard.KillServer();
  yard.StartServer();
  EXPECT_EQ(yard.GetJob("jobs/500").spec().name(), "job-499");
  EXPECT_EQ(yard.Cli({"cancel", "7"}).exit_code, 0);
  const ProcessResult cancelled = yard.Cli({"cancel", "--all-queued"});
  EXPECT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_TRUE(absl::StrContains(cancelled.err, "499 cancelled")) << cancelled.err;
  EXPECT_TRUE(yard.CliJson({"ls", "-a", "--state", "queued"}).empty());
}

TEST(Many, TheRulesOfSharingSurviveTheServer) {
  Yard yard;
  yard.StartServer();
  ASSERT_EQ(yard.Cli({"quotas", "set", "user:*", "--queued", "2"}).exit_code, 0);
  yard.KillServer();
  yard.StartServer();
  const std::string path = yard.File("job.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, SmallSpec("one", 1, 1, 500)).ok());
  EXPECT_EQ(yard.Cli({"submit", path}).exit_code, 0);
  const ProcessResult refused = yard.Cli({"submit", path, "--array", "2"});
  EXPECT_EQ(refused.exit_code, 7);
  EXPECT_TRUE(absl::StrContains(refused.err, "would have 3 queued jobs; its quota is 2"))
      << refused.err;
}

}  // namespace
}  // namespace trainyard::testing
