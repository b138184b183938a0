// Tests `bench scaling` against the fake server, whose jobs succeed at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSpec[] = R"(
name: small
model: {mlp: {}}
data: {dataset: glyphs}
train: {epochs: 5, global_batch: 100, seed: 1}
optimizer: {sgd: {lr: 0.1}}
schedule: {warmup_epochs: 1, cosine: {}}
devices: 1
)";
constexpr int kSteps = 20;

class BenchScaling : public ::testing::Test {
 protected:
  BenchScaling() {
    EXPECT_TRUE(ReplaceFile(file_, kSpec).ok());
    server_.MakeNewJobs(v1::JOB_STATE_SUCCEEDED);
  }

  // The metrics that jobs/`number` will have reported once it is made, since it ends at once.
  void Report(int number, int64_t step_us, const std::string& weights) {
    const std::string job = absl::StrCat("jobs/", number);
    for (int step = 1; step <= kSteps; ++step) {
      server_.AddPoint(job, step, "train.loss", 1.5, 1'000'000 + step * step_us);
    }
    server_.AddCheckpoint(job, kSteps, {{"model.safetensors", weights}});
  }

  CommandResult Bench(const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"bench",   "scaling",           file_, "--devices", "1,2",
                                     "--steps", absl::StrCat(kSteps)};
    args.insert(args.end(), more.begin(), more.end());
    return runner_.Run(args);
  }

  FakeServer server_;
  CommandRunner runner_{server_.address()};
  const std::string file_ = runner_.home.File("small.yaml");
};

TEST_F(BenchScaling, ComparesRunsAndWritesTheReport) {
  Report(1, 100'000, "w");
  Report(2, 50'000, "w");
  const std::string folder = runner_.home.File("report");
  const CommandResult result = Bench({"-O", folder});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("small: mlp, batch 100 of 2 replicas, 20 steps\n"),
                                HasSubstr("      2      2,000     2.00x      100.0%"),
                                HasSubstr("final losses agree within 5.0%")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("1 device: jobs/1"), HasSubstr("2 devices: jobs/2"),
                                HasSubstr("the warm-up of the schedule is longer than a run")));
  const auto json = nlohmann::json::parse(*ReadFile(JoinPath(folder, "scaling.json")));
  EXPECT_EQ(json["measured"][1]["jobs"][0], "jobs/2");
  EXPECT_TRUE(FileExists(JoinPath(folder, "scaling.svg")));

  const v1::JobSpec spec = server_.last_create().spec();
  EXPECT_EQ(spec.name(), "small-on-2");
  EXPECT_EQ(spec.train().steps(), kSteps);
  EXPECT_EQ(spec.train().replicas(), 2);
  EXPECT_EQ(spec.devices().count(), 2);
  EXPECT_EQ(spec.max_retries(), 0);
}

TEST_F(BenchScaling, OtherWeightsInBitwiseAreAFailure) {
  Report(1, 100'000, "w");
  Report(2, 50'000, "other");
  const CommandResult result = Bench({"--set", "train.reproducibility=bitwise", "-o", "json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["agree"], false);
  EXPECT_EQ(json["measured"][1]["agrees"], false);
  EXPECT_EQ(server_.last_create().spec().train().reproducibility(), v1::REPRODUCIBILITY_BITWISE);
}

TEST_F(BenchScaling, TheMedianOfSeveralRunsCounts) {
  // In these rounds, jobs 1, 3 and 5 are those on one device.
  const int64_t times[] = {100'000, 50'000, 300'000, 50'000, 110'000, 50'000};
  for (int i = 0; i < 6; ++i) Report(i + 1, times[i], "w");
  const CommandResult result = Bench({"--runs", "3", "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto one = nlohmann::json::parse(result.out)["measured"][0];
  EXPECT_NEAR(one["step_seconds"].get<double>(), 0.110, 1e-9);
  EXPECT_EQ(one["jobs"], (std::vector<std::string>{"jobs/1", "jobs/3", "jobs/5"}));
}

TEST_F(BenchScaling, AJobIsASourceToo) {
  Report(1, 100'000, "w");
  Report(2, 50'000, "w");
  ASSERT_EQ(Bench().exit_code, 0);
  Report(3, 100'000, "w");
  const CommandResult result =
      runner_.Run({"bench", "scaling", "2", "--devices", "2", "--steps", "20"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(server_.last_create().spec().name(), "small-on-2-on-2");
}

TEST_F(BenchScaling, ARunThatEndsBadlyEndsIt) {
  server_.MakeNewJobs(v1::JOB_STATE_FAILED);
  const CommandResult result = Bench();
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("jobs/1 on 1 device is FAILED"), Not(HasSubstr("jobs/2"))));
}

TEST_F(BenchScaling, MistakesAreToldBeforeAnythingRuns) {
  for (const char* counts : {"2,1", "0", "1,1", "x", "", "1,5000"}) {
    EXPECT_EQ(runner_.Run({"bench", "scaling", file_, "--devices", counts}).exit_code, 2) << counts;
  }
  EXPECT_EQ(runner_.Run({"bench", "scaling", "absent.yaml", "--devices", "1"}).exit_code, 3);
  EXPECT_EQ(Bench({"--set", "train.global_batch=1"}).exit_code, 2) << "two replicas, one sample";
  EXPECT_EQ(Bench({"--set", "train.global_match=8"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"ls"}).out, "");
}

}  // namespace
}  // namespace trainyard::testing
