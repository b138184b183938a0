// Tests everything that users see of a gang, with the real binaries: which rank hosts which
// replicas, the timelines of the ranks, and the scaling report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::trainyard::v1::Job;

// A rank that trains nothing and writes what a trainer writes.
constexpr char kTrainer[] = R"sh(#!/bin/sh
set -e
cd "$TRAINYARD_RUN_DIR/ranks/$TRAINYARD_RANK"
put() { cat > "$1.tmp.$$"; mv "$1.tmp.$$" "$1"; }
for step in 1 2 3; do
  t=$((step * 1000))
  echo '{"name":"backward","cat":"compute","ph":"X","ts":'$t',"dur":600,"pid":0,"tid":0,"args":{"step":'$step'}}'
  echo '{"name":"all_reduce","cat":"comm","ph":"X","ts":'$((t + 200))',"dur":500,"pid":0,"tid":1,"args":{"step":'$step'}}'
  echo '{"name":"wait","cat":"wait","ph":"X","ts":'$((t + 600))',"dur":100,"pid":0,"tid":0,"args":{"step":'$step'}}'
done >> trace.jsonl
hosting='"hosting":[{"rank":0,"first_replica":0,"replicas":6,"stage":0,"samples_per_s":4050.0},{"rank":1,"first_replica":6,"replicas":2,"stage":0,"samples_per_s":1350.0}],"hosting_reason":"speeds of steps 3 to 10",'
[ "$TRAINYARD_RANK" = 0 ] || hosting=
echo '{"state":"finished",'"$hosting"'"step":3,"total_steps":3}' | put progress.json
echo '{"outcome":"succeeded","reason":"","message":"","step":3,"metrics":{}}' | put result.json
)sh";

TEST(Scaling, TimelinesAndHostingComeFromTheRanksToTheUser) {
  const TempDir dir;
  const std::string trainer = dir.File("trainer");
  ASSERT_TRUE(ReplaceFile(trainer, kTrainer).ok());
  ASSERT_EQ(chmod(trainer.c_str(), 0755), 0);
  Yard::Options options;
  options.worker_flags = {"--trainer", trainer};
  Yard yard(std::move(options));
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("double", 2, 1, 500));
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();

  const ProcessResult trace = yard.Cli({"trace", job});
  ASSERT_EQ(trace.exit_code, 0) << trace.err;
  const auto json = nlohmann::json::parse(trace.out);
  size_t spans = 0;
  for (const auto& event : json["traceEvents"]) spans += event["ph"] == "X" ? 1 : 0;
  EXPECT_EQ(spans, 18U);
  EXPECT_THAT(trace.err, HasSubstr("3 steps of 2 ranks, 18 events; 80.0% of the communication"));
  const std::string file = dir.File("trace.json");
  EXPECT_EQ(yard.Cli({"trace", job, "--rank", "1", "--attempt", "1", "-O", file}).exit_code, 0);
  EXPECT_TRUE(FileExists(file));

  const std::string row = "0  alpha   cpu-0   0-5 (6)   75.0%      4,050";
  EXPECT_THAT(yard.Cli({"show", job}).out, HasSubstr(row));
  // The hosting is part of the record, so a server that starts again still reports it.
  yard.KillServer();
  yard.StartServer();
  EXPECT_THAT(yard.Cli({"show", job}).out, HasSubstr(row));
  EXPECT_THAT(yard.Cli({"show", job}).out, HasSubstr("speeds of steps 3 to 10"));
}

TEST(Scaling, TheReportRunsASpecOnEachNumberOfDevicesAndComparesTheResults) {
  Yard yard;
  yard.Start();
  // A pool without workers cannot hold any job, and says so.
  ASSERT_TRUE(WaitUntil([&yard] { return yard.CliJson({"workers", "ls"}).size() == 1; }));
  const TempDir dir;
  const std::string spec = dir.File("spec.yaml");
  ASSERT_TRUE(ReplaceFile(spec, SmallSpec("small", 1, 100, 1000)).ok());
  const std::string folder = dir.File("report");
  const ProcessResult bench =
      yard.Cli({"bench", "scaling", spec, "--devices", "1,2", "--steps", "30", "-O", folder});
  ASSERT_EQ(bench.exit_code, 0) << bench.err << bench.out;
  EXPECT_THAT(bench.out, HasSubstr("small: convnet, batch 50 of 2 replicas, 30 steps\n"));
  EXPECT_THAT(bench.out, HasSubstr("final losses agree"));
  const auto json = nlohmann::json::parse(*ReadFile(JoinPath(folder, "scaling.json")));
  ASSERT_EQ(json["measured"].size(), 2U);
  EXPECT_GT(json["measured"][1]["samples_per_s"], 0);
  EXPECT_TRUE(absl::StartsWith(json["measured"][1]["weights"].get<std::string>(), "xxh3-128:"));
  EXPECT_THAT(*ReadFile(JoinPath(folder, "scaling.svg")), HasSubstr("</svg>"));
  // The jobs of the report are ordinary jobs, and a job can also be the source of a report.
  EXPECT_EQ(yard.GetJob("jobs/2").resolved_spec().name(), "small-on-2");
  const ProcessResult again = yard.Cli(
      {"bench", "scaling", "1", "--devices", "2", "--steps", "20", "--runs", "2", "-o", "json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(again.out)["measured"][0]["jobs"].size(), 2U);

  const ProcessResult many =
      yard.Cli({"bench", "scaling", spec, "--devices", "1,64", "--set", "train.global_batch=128"});
  EXPECT_EQ(many.exit_code, 6) << many.err;
  EXPECT_THAT(many.err, HasSubstr("it needs 64 devices"));
  EXPECT_EQ(yard.Cli({"bench", "scaling", spec, "--devices", "2,1"}).exit_code, 2);
}

}  // namespace
}  // namespace trainyard::testing
