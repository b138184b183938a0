// Tests that a job can be run again from what is recorded of it, and what is said of the two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Verify, AJobComesOutTheSameAndAProgramWithRandomNumbersDoesNot) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("small", 1, 1, 64));
  ASSERT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const ProcessResult same = yard.Cli({"verify", "1"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr("train.loss"), HasSubstr("jobs/2 is IDENTICAL to jobs/1\n"),
                              HasSubstr("are the same, byte for byte")));
  const auto listed = yard.CliJson({"verify", "1", "--list"});
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].at("devices"), "1 x cpu");

  const std::string program = yard.Submit(absl::StrCat(
      "name: dice\ndevices: 1\nprogram:\n  env: {PYTHONPATH: ", SourcePath("client/python"),
      "}\n  script: |\n    #!/usr/bin/python3\n    import random, trainyard\n"
      "    for step in range(1, 9):\n        trainyard.log(step, {\"train.loss\": 1 + "
      "random.random()})\n"));
  ASSERT_EQ(yard.WaitForEnd(program).state(), v1::JOB_STATE_SUCCEEDED);
  const ProcessResult other = yard.Cli({"verify", "3"});
  EXPECT_EQ(other.exit_code, 1) << other.out << other.err;
  EXPECT_THAT(other.out, AllOf(HasSubstr("jobs/4 is DIFFERENT from jobs/3 (tolerance 1%)\n"),
                               HasSubstr("train.loss differs by "),
                               HasSubstr("random numbers without a fixed seed")));

  // The results outlive the second runs, and the lineage and the filter know them.
  EXPECT_EQ(yard.Cli({"rm", "2", "4", "-y"}).exit_code, 0);
  EXPECT_THAT(yard.Cli({"show", "1"}).out, HasSubstr("reproduced 1 of 1 time, last "));
  EXPECT_THAT(yard.Cli({"show", "3"}).out, HasSubstr("reproduced 0 of 1 time, last "));
  EXPECT_THAT(yard.Cli({"lineage", "1"}).out, HasSubstr("reproduced 1 of 1"));
  EXPECT_EQ(yard.Cli({"tag", "3", "dice"}).exit_code, 0);
  EXPECT_EQ(yard.Cli({"ls", "--where", "tag = dice and train.loss > 1", "-o", "name"}).out,
            "jobs/3\n");
  EXPECT_THAT(yard.Cli({"compare", "1", "3"}).out, HasSubstr("device-hours"));
  const ProcessResult wrong = yard.Cli({"ls", "--where", "train.loss >"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("character 13: found the end"));
}

}  // namespace
}  // namespace trainyard::testing
