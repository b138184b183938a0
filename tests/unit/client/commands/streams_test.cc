// Tests logs, metrics and trace, against the fake server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
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

TEST_F(Streams, OlderAttemptsHaveLogsOfTheirOwn) {
  server_.AddLog("jobs/1", 0, "new\n");
  server_.AddLog("jobs/1/attempts/1", 0, "old\n");
  EXPECT_EQ(runner_.Run({"logs", "1", "--attempt", "1"}).out, "old\n");
  EXPECT_EQ(runner_.Run({"logs", "jobs/1/attempts/1"}).out, "old\n");
  EXPECT_EQ(runner_.Run({"logs", "1", "--attempt", "0"}).exit_code, 2);
}

TEST_F(Streams, LinesOfSeveralRanksSayWhoseTheyAre) {
  MakeTwoRanks();
  server_.AddLog("jobs/1", 0, "one\nhalf");
  server_.AddLog("jobs/1", 1, "uno\n");
  EXPECT_EQ(runner_.Run({"logs", "1"}).out, "[0] one\n[1] uno\n[0] half\n");
  EXPECT_EQ(runner_.Run({"logs", "1", "--rank", "1"}).out, "uno\n");
}

TEST_F(Streams, ARankThatIsNotThereIsToldWithThoseThatAre) {
  server_.AddLog("jobs/1", 0, "one\n");
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    for (int rank = 0; rank < 2; ++rank) job.add_placement()->set_rank(rank);
  });
  EXPECT_EQ(runner_.Run({"logs", "1", "--rank", "0"}).out, "one\n");
  const CommandResult result = runner_.Run({"logs", "1", "--rank", "7"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("jobs/1 has no rank 7; it has 0 to 1"));
}

// A log need not be text, and no terminal obeys it.
TEST_F(Streams, ControlCharactersInALogAreShown) {
  server_.AddLog("jobs/1", 0, "a\x1b[2J\xff[2J\n");
  EXPECT_EQ(runner_.Run({"logs", "1"}).out, "a\\u001b[2J?[2J\n");
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
  // "three" may be the only line with which the tail begins.
  EXPECT_THAT(result.out, ::testing::AnyOf("two\nthree\n", "three\n"));
}

TEST_F(Streams, FollowingALogTellsThatTheServerIsBack) {
  server_.AddLog("jobs/1", 0, "one\n");
  CommandResult result;
  std::thread command([&] { result = runner_.Run({"logs", "1", "-f"}); });
  server_.WaitForTails(1);
  server_.Stop();
  server_.Start();
  server_.WaitForTails(2);
  server_.AddLog("jobs/1", 0, "two\n");
  End();
  command.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "one\ntwo\n");
  EXPECT_EQ(result.err,
            "--- the connection to the server is lost; trying again\n"
            "--- the server is back; following continues\n");
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
                    HasSubstr("METRIC      POINTS  MEAN  FIRST   MIN  MAX  LAST  AT STEP\n"
                              "lr              50   0.1    0.1   0.1  0.1   0.1       50\n"
                              "train.loss      50  0.18      2  0.04    2  0.04       50\n")));
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

TEST_F(Streams, AWordChoosesAGroupOfMetricsWithMeansAndUnits) {
  for (int step = 1; step <= 4; ++step) {
    server_.AddPoint("jobs/1", step, "train.loss", 2.0);
    server_.AddPoint("jobs/1", step, "comm.seconds", 0.001 * step);
    server_.AddPoint("jobs/1", step, "comm.exposed_seconds", 0.0001);
    server_.AddPoint("jobs/1", step, "comm.hidden_fraction", 0.95);
    server_.AddPoint("jobs/1", step, "comm.bytes", 5 << 20);
    server_.AddPoint("jobs/1", step, "compute.seconds", 1.5);
    server_.AddPoint("jobs/1", step, "commute", 1);
  }
  const CommandResult result = runner_.Run({"metrics", "1", "comm"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("comm.bytes                 4  5.0 MiB  5.0 MiB"),
            HasSubstr("comm.exposed_seconds       4   100 us"), HasSubstr("95.0%"),
            HasSubstr("comm.seconds               4   2.5 ms     1 ms     1 ms     4 ms     4 ms"),
            HasSubstr("compute.seconds            4    1.5 s"), HasSubstr("comm.seconds\n"),
            Not(HasSubstr("train.loss")), Not(HasSubstr("commute"))));
  const auto list = nlohmann::json::parse(runner_.Run({"metrics", "1", "train", "-o", "json"}).out);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["name"], "train.loss");
  const CommandResult unknown = runner_.Run({"metrics", "1", "gpu"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("has no metrics 'gpu'; it has comm, commute, compute, train"));
}

TEST_F(Streams, AMetricThatIsNotThereIsToldWithTheNearest) {
  for (int step = 1; step <= 4; ++step) server_.AddPoint("jobs/1", step, "train.loss", 2.0);
  const CommandResult result = runner_.Run({"metrics", "1", "--metric", "train.los"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("jobs/1 has no metric 'train.los'; did you mean 'train.loss'?"));
  EXPECT_EQ(runner_.Run({"metrics", "1", "--metric", "train.loss"}).exit_code, 0);
}

TEST_F(Streams, TheMetricsOfSeveralJobsStandTogether) {
  server_.AddJob("other", v1::JOB_STATE_SUCCEEDED);
  for (int step = 1; step <= 4; ++step) {
    server_.AddPoint("jobs/1", step, "train.loss", 2.0);
    server_.AddPoint("jobs/2", step, "train.loss", 3.0);
  }
  for (const auto& args : {std::vector<std::string>{"metrics", "1", "2", "train"},
                           std::vector<std::string>{"metrics", "1,2"}}) {
    const CommandResult result = runner_.Run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("train.loss of jobs/1"), HasSubstr("train.loss of jobs/2"),
                      HasSubstr("JOB  METRIC"), HasSubstr("  1  train.loss       4     2"),
                      HasSubstr("  2  train.loss       4     3")));
  }
  EXPECT_EQ(runner_.Run({"metrics", "1,2", "-o", "json"}).exit_code, 2);
}

TEST_F(Streams, TheTimelinesOfTheRanksBecomeOneFile) {
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.set_attempt(2);
    for (int rank = 0; rank < 2; ++rank) {
      v1::RankPlacement& placed = *job.add_placement();
      placed.set_rank(rank);
      placed.set_worker("workers/lab-1");
      placed.set_device(absl::StrCat("cpu-", rank));
    }
  });
  const std::string attempt = "jobs/1/attempts/2";
  for (int rank = 0; rank < 2; ++rank) {
    server_.AddTrace(attempt, rank,
                     R"({"name":"backward","cat":"compute","ph":"X","ts":10,"dur":20,"pid":9,)"
                     R"("tid":0,"args":{"step":3}})"
                     "\n"
                     R"({"name":"all_reduce","cat":"comm","ph":"X","ts":20,"dur":20,"pid":9,)"
                     R"("tid":1,"args":{"step":3}})"
                     "\n"
                     R"({"name":"wait","cat":"wait","ph":"X","ts":30,"dur":5,"pid":9,"tid":0})"
                     "\nnonsense\n{\"name\": \"half");
  }
  const CommandResult result = runner_.Run({"trace", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["traceEvents"].size(), 10U);
  EXPECT_EQ(json["traceEvents"][5]["pid"], 1);
  EXPECT_EQ(json["traceEvents"][6]["args"]["name"], "rank 0: lab-1 cpu-0");
  EXPECT_EQ(json["otherData"]["attempt"], attempt);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("1 step of 2 ranks, 6 events; 75.0% of the communication is hidden"),
                    HasSubstr("2 lines are not events"), HasSubstr("chrome://tracing"),
                    HasSubstr("ui.perfetto.dev")));

  const std::string path = runner_.home.File("trace.json");
  const CommandResult one = runner_.Run({"trace", "1", "--rank", "1", "-O", path});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.out, "");
  const auto written = nlohmann::json::parse(*ReadFile(path));
  EXPECT_EQ(written["traceEvents"].size(), 5U);
  EXPECT_THAT(one.err, HasSubstr(path));
}

TEST_F(Streams, AJobWithoutATimelineIsTold) {
  server_.ChangeJob("jobs/1", [](v1::Job& job) { job.set_attempt(0); });
  EXPECT_THAT(runner_.Run({"trace", "1"}).err, HasSubstr("has not run yet"));
  server_.ChangeJob("jobs/1", [](v1::Job& job) { job.set_attempt(1); });
  const CommandResult none = runner_.Run({"trace", "1"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("jobs/1/attempts/1 has no timeline yet"));
  EXPECT_THAT(runner_.Run({"trace", "1", "--attempt", "4"}).err, HasSubstr("attempts/4"));
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
