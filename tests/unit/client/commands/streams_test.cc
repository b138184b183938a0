#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Streams : public ::testing::Test {
 protected:
  Streams() {
    server_.AddJob("small", v1::JOB_STATE_RUNNING);
    server_.ChangeJob("jobs/1", [](v1::Job& job) { job.set_attempt(1); });
  }
  void MakeTwoRanks() {
    server_.ChangeJob("jobs/1", [](v1::Job& job) {
      job.mutable_resolved_spec()->mutable_devices()->set_count(2);
    });
  }
  void End() {
    server_.ChangeJob("jobs/1", [](v1::Job& job) { job.set_state(v1::JOB_STATE_SUCCEEDED); });
  }

  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(Streams, TheLogOfOneRankComesAsItIs) {
  server_.AddLog("jobs/1", 0, "one\ntwo\nhalf");
  EXPECT_EQ(runner_.Run({"logs", "last"}).out, "one\ntwo\nhalf");
}

TEST_F(Streams, LinesOfSeveralRanksSayWhoseTheyAre) {
  MakeTwoRanks();
  server_.AddLog("jobs/1", 0, "one\nhalf");
  server_.AddLog("jobs/1", 1, "uno\n");
  EXPECT_EQ(runner_.Run({"logs", "1"}).out, "[0] one\n[1] uno\n[0] half\n");
  EXPECT_EQ(runner_.Run({"logs", "1", "--rank", "1"}).out, "uno\n");
}

TEST_F(Streams, OnlyTheLastLinesAreShownWhereAskedFor) {
  MakeTwoRanks();
  for (int i = 0; i < 500; ++i) {
    server_.AddLog("jobs/1", 0, "zero " + std::to_string(i) + "\n");
    server_.AddLog("jobs/1", 1, "one " + std::to_string(i) + "\n");
  }
  EXPECT_EQ(runner_.Run({"logs", "1", "--tail", "2"}).out,
            "[0] zero 498\n[0] zero 499\n[1] one 498\n[1] one 499\n");
  EXPECT_EQ(runner_.Run({"logs", "1", "--tail", "0"}).out, "");
}

TEST_F(Streams, FollowingALogEndsWithTheJobAndLosesNothing) {
  server_.AddLog("jobs/1", 0, "one\ntwo\n");
  CommandResult result;
  std::thread command([&] { result = runner_.Run({"logs", "1", "-f", "--tail", "1"}); });
  server_.AddLog("jobs/1", 0, "three\n");
  End();
  command.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // "three" may be the one line that the tail begins with.
  EXPECT_THAT(result.out, ::testing::AnyOf("two\nthree\n", "three\n"));
}

TEST_F(Streams, AJobThatHasNotRunHasNoLog) {
  server_.AddJob("new", v1::JOB_STATE_QUEUED);
  const CommandResult result = runner_.Run({"logs", "last"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("has not run yet"));
}

TEST_F(Streams, MetricsAreDrawnAndSummedUp) {
  for (int step = 1; step <= 50; ++step) {
    server_.AddPoint("jobs/1", step, "train.loss", 2.0 / step);
    server_.AddPoint("jobs/1", step, "lr", 0.1);
  }
  const CommandResult result = runner_.Run({"metrics", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("train.loss\n2.0 +"), HasSubstr("step\n"), Not(HasSubstr("lr\n")),
                    HasSubstr("METRIC      POINTS  FIRST   MIN  MAX  LAST  AT STEP\n"
                              "lr              50    0.1   0.1  0.1   0.1       50\n"
                              "train.loss      50      2  0.04    2  0.04       50\n")));
  EXPECT_THAT(runner_.Run({"metrics", "1", "--metric", "lr"}).out, HasSubstr("lr\n"));
}

TEST_F(Streams, MetricsAreDataToo) {
  server_.AddPoint("jobs/1", 1, "train.loss", 2.0);
  server_.AddPoint("jobs/1", 2, "train.loss", 1.0);
  const auto list = nlohmann::json::parse(runner_.Run({"metrics", "1", "-o", "json"}).out);
  EXPECT_EQ(list[0]["name"], "train.loss");
  EXPECT_EQ(list[0]["points"].size(), 2u);
  const std::string lines = runner_.Run({"metrics", "1", "-o", "jsonl"}).out;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_EQ(runner_.Run({"metrics", "1", "--follow", "-o", "json"}).exit_code, 2);
}

TEST_F(Streams, FollowedPointsEndWithTheJob) {
  server_.AddPoint("jobs/1", 1, "train.loss", 2.0);
  CommandResult result;
  std::thread command([&] { result = runner_.Run({"metrics", "1", "-f", "--metric", "lr"}); });
  server_.WaitForWatches(1);
  server_.AddPoint("jobs/1", 1, "lr", 0.1);
  End();
  command.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "1\tlr\t0.1\n");
}

}  // namespace
}  // namespace trainyard::testing
