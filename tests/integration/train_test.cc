// Tests the main use of the product: submit, follow, look, download, clone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

// Steps of the points, which must be 1, 2, ... n without gap and without repetition.
void ExpectEveryStepOnce(const std::vector<v1::MetricPoint>& points, int64_t steps) {
  ASSERT_EQ(static_cast<int64_t>(points.size()), steps);
  for (int64_t i = 0; i < steps; ++i) {
    ASSERT_EQ(points[static_cast<size_t>(i)].step(), i + 1) << "at position " << i;
  }
}

TEST(Train, AJobGoesFromSubmitToADownloadedCheckpoint) {
  Yard yard;
  yard.Start();
  const std::string path = yard.File("job.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, SmallSpec("first", 2, 3, 2000)).ok());

  const ProcessResult followed = yard.Cli({"submit", path, "--follow"});
  ASSERT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_TRUE(absl::StrContains(followed.err, "accuracy")) << followed.err;

  const Job job = yard.GetJob("jobs/1");
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.progress().step(), 3 * 40);
  EXPECT_GT(job.final_metrics().at("test.accuracy"), 0.3);  // ten classes: chance is 0.1
  EXPECT_EQ(job.resolved_spec().train().replicas(), 2);
  EXPECT_EQ(job.resolved_spec().train().precision(), v1::PRECISION_F32) << "auto, on the CPU";
  EXPECT_TRUE(absl::StartsWith(job.provenance().data_digest(), "glyphs-v1:"));
  ExpectEveryStepOnce(yard.Metrics("jobs/1", "train.loss"), 120);

  const auto listed = yard.CliJson({"ls", "-a"});
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["name"], "jobs/1");
  EXPECT_EQ(listed[0]["state"], "JOB_STATE_SUCCEEDED");

  const ProcessResult plot = yard.Cli({"metrics", "1"});
  EXPECT_EQ(plot.exit_code, 0) << plot.err;
  EXPECT_TRUE(absl::StrContains(plot.out, "train.loss")) << plot.out;

  const auto checkpoints = yard.CliJson({"checkpoints", "ls", "last"});
  // keep.last is 2. The best checkpoint also stays, which is the first one with the highest
  // accuracy.
  int64_t best_step = 0;
  double best = -1;
  for (const v1::MetricPoint& point : yard.Metrics("jobs/1", "test.accuracy")) {
    if (point.value() > best) best_step = point.step();
    best = std::max(best, point.value());
  }
  ASSERT_EQ(checkpoints.size(), best_step == 40 ? 3u : 2u);
  EXPECT_EQ(checkpoints.back()["name"], "jobs/1/checkpoints/120");
  for (const auto& checkpoint : checkpoints) {
    EXPECT_EQ(checkpoint.value("is_best", false),
              checkpoint["name"] == absl::StrCat("jobs/1/checkpoints/", best_step));
  }
  const ProcessResult verified = yard.Cli({"checkpoints", "verify", "last", "best"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  EXPECT_TRUE(absl::StrContains(verified.out, "test.top5")) << verified.out;
  const std::string out = yard.File("download");
  const ProcessResult got = yard.Cli({"checkpoints", "get", "last", "-O", out});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
    names.insert(entry.path().filename().string());
  }
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST"}) {
    EXPECT_EQ(names.count(file), 1u) << file;
  }
}

TEST(Train, ACloneShowsItsDifferenceAndAnEqualCloneGivesTheSameCurve) {
  Yard yard;
  yard.Start();
  const std::string original = yard.Submit(SmallSpec("origin", 1, 1, 1000));
  ASSERT_EQ(yard.WaitForEnd(original).state(), v1::JOB_STATE_SUCCEEDED);

  const ProcessResult same = yard.Cli({"clone", "1", "--yes", "-o", "name"});
  ASSERT_EQ(same.exit_code, 0) << same.err;
  ASSERT_EQ(yard.WaitForEnd("jobs/2").state(), v1::JOB_STATE_SUCCEEDED);
  const auto left = yard.Metrics("jobs/1", "train.loss");
  const auto right = yard.Metrics("jobs/2", "train.loss");
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) EXPECT_EQ(left[i].value(), right[i].value()) << i;

  const ProcessResult other = yard.Cli({"clone", "1", "--set", "optimizer.sgd.lr=0.01", "--yes"});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_TRUE(absl::StrContains(other.err + other.out, "optimizer.sgd.lr"));
  const ProcessResult diff = yard.Cli({"diff", "1", "3"});
  EXPECT_EQ(diff.exit_code, 0) << diff.err;
  EXPECT_TRUE(absl::StrContains(diff.out, "optimizer.sgd.lr")) << diff.out;
  EXPECT_TRUE(absl::StrContains(diff.out, "0.01")) << diff.out;
  EXPECT_EQ(yard.GetJob("jobs/3").provenance().cloned_from(), "jobs/1");
  EXPECT_EQ(yard.WaitForEnd("jobs/3").state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Train, TwoRanksGiveTheCurveOfOne) {
  Yard yard;
  yard.Start();
  // The replicas are the same, and so are the numbers, up to the order of sums.
  const std::string one = yard.Submit(absl::StrCat(SmallSpec("one", 1, 1, 1500)));
  const std::string two = yard.Submit(absl::StrCat(SmallSpec("two", 2, 1, 1500)));
  ASSERT_EQ(yard.WaitForEnd(one).state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(yard.WaitForEnd(two).state(), v1::JOB_STATE_SUCCEEDED);
  const auto left = yard.Metrics(one, "train.loss");
  const auto right = yard.Metrics(two, "train.loss");
  ASSERT_EQ(left.size(), 30u);
  ASSERT_EQ(right.size(), 30u);
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_NEAR(left[i].value(), right[i].value(), 1e-3 * (1.0 + static_cast<double>(i)) / 10)
        << "at step " << i + 1;
  }
}

TEST(Train, AGangSpansTwoWorkers) {
  Yard::Options options;
  options.cpu_devices = 1;
  options.worker_flags = {"--address", "127.0.0.1"};
  Yard yard(std::move(options));
  yard.Start();
  yard.StartWorker("beta");
  yard.WaitForWorkers(2);
  const std::string job = yard.Submit(SmallSpec("wide", 2, 1, 1000));
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  ASSERT_EQ(ended.placement_size(), 2);
  EXPECT_NE(ended.placement(0).worker(), ended.placement(1).worker());
  ExpectEveryStepOnce(yard.Metrics(job, "train.loss"), 20);
}

TEST(Train, CancelStopsARunningJobAndFreesItsDevices) {
  Yard yard;
  yard.Start();
  const std::string first = yard.Submit(SmallSpec("long", 2, 1000, 2000));
  const std::string second = yard.Submit(SmallSpec("waits", 2, 1, 500));
  ASSERT_TRUE(yard.WaitForStep(first, 5));
  const Job waiting = yard.GetJob(second);
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_QUEUED);
  ASSERT_GT(waiting.queue_reasons_size(), 0);
  EXPECT_TRUE(absl::StrContains(waiting.queue_reasons(0), "jobs/1")) << waiting.queue_reasons(0);
  ASSERT_EQ(yard.Cli({"cancel", "1"}).exit_code, 0);
  EXPECT_EQ(yard.WaitForEnd(first).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(yard.WaitForEnd(second).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.Cli({"wait", "1"}).exit_code, 8);
  EXPECT_EQ(yard.Cli({"wait", "2"}).exit_code, 0);
}

TEST(Train, ASuspendedJobResumesFromItsCheckpointWithTheSameCurve) {
  Yard yard;
  yard.Start();
  const std::string plain = yard.Submit(SmallSpec("plain", 1, 8, 4000));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string job = yard.Submit(SmallSpec("paused", 1, 8, 4000));
  ASSERT_TRUE(yard.WaitForStep(job, 20));
  ASSERT_EQ(yard.Cli({"suspend", "2"}).exit_code, 0);
  ASSERT_TRUE(yard.WaitForJob(
      job, [](const Job& seen) { return seen.state() == v1::JOB_STATE_SUSPENDED; }));
  ASSERT_EQ(yard.Cli({"resume", "2"}).exit_code, 0);
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 2);
  const auto left = yard.Metrics(plain, "train.loss");
  const auto right = yard.Metrics(job, "train.loss");
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].value(), right[i].value()) << "at step " << left[i].step();
  }
}

TEST(Train, EveryOptimizerGoesFromASpecThroughAPauseToItsEnd) {
  Yard yard;
  yard.Start();
  const char* optimizers[] = {
      "{adamw: {lr: 0.002, betas: [0.9, 0.99], decay_bias_and_norm: false}, clip_norm: 5, "
      "ema_decay: 0.98}",
      "{lars: {lr: 5, trust_coefficient: 0.01}, lr_base_batch: 100, ema_decay: 0.98}",
      "{lamb: {lr: 0.01}, clip_norm: 5, ema_decay: 0.98}",
  };
  for (const char* optimizer : optimizers) {
    SCOPED_TRACE(optimizer);
    std::string text = SmallSpec("any", 1, 8, 3000, "schedule: {polynomial: {power: 2}}\n");
    text = absl::StrReplaceAll(text,
                               {{"{sgd: {lr: 0.05, momentum: 0.9, nesterov: true}}", optimizer}});
    const std::string plain = yard.Submit(text);
    ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
    const std::string paused = yard.Submit(text);
    ASSERT_TRUE(yard.WaitForStep(paused, 20));
    ASSERT_EQ(yard.Cli({"suspend", paused}).exit_code, 0);
    ASSERT_TRUE(yard.WaitForJob(
        paused, [](const Job& seen) { return seen.state() == v1::JOB_STATE_SUSPENDED; }));
    ASSERT_EQ(yard.Cli({"resume", paused}).exit_code, 0);
    const Job ended = yard.WaitForEnd(paused);
    ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
    EXPECT_EQ(ended.attempt(), 2);
    EXPECT_GT(ended.final_metrics().at("test.ema_accuracy"), 0.3);
    for (const char* metric : {"train.loss", "test.loss", "test.ema_loss"}) {
      const auto left = yard.Metrics(plain, metric);
      const auto right = yard.Metrics(paused, metric);
      ASSERT_EQ(left.size(), right.size()) << metric;
      ASSERT_FALSE(left.empty()) << metric;
      for (size_t i = 0; i < left.size(); ++i) {
        EXPECT_EQ(left[i].value(), right[i].value()) << metric << " at step " << left[i].step();
      }
    }
    const std::string out = yard.File(absl::StrCat("download-", ended.name().substr(5)));
    ASSERT_EQ(yard.Cli({"checkpoints", "get", paused, "-O", out}).exit_code, 0);
    bool has_average = false;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
      has_average = has_average || entry.path().filename() == "ema.safetensors";
    }
    EXPECT_TRUE(has_average);
  }
}

TEST(Train, TheTrainerAndTheSupervisorRunByHandWithoutAServer) {
  TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir.File("run")).ok());
  ASSERT_TRUE(WriteFileAtomically(dir.File("run/assignment.json"), R"({
    "format": 1, "job": 1, "attempt": 1, "fencing_token": 1, "world_size": 1,
    "ranks": [{"rank": 0, "local_rank": 0, "device": "cpu-0", "device_type": "cpu", "cpus": [], "threads": 1}],
    "backend": "cpu", "interface": "lo", "dataset_dir": "", "resume_from": "",
    "spec": {"name": "by-hand", "model": {"mlp": {"hidden": [16], "classes": 10, "input": [1, 28, 28]}},
      "data": {"dataset": "glyphs", "normalize": "NORMALIZE_DATASET", "train_size": "500", "test_size": "100"},
      "train": {"epochs": "1", "global_batch": "50", "replicas": 1, "seed": "1", "precision": "PRECISION_F32"},
      "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": true, "weight_decay": 0}},
      "schedule": {"warmup_epochs": 0, "constant": {}},
      "checkpoint": {"every": {"epochs": "1"}, "keep": {"last": 2}}, "evaluate": {"every": {"epochs": "1"}}}})")
                  .ok());
  Process::Options trainer;
  trainer.args = {Yard::Binary("trainyard-trainer"), "--run_dir", dir.File("run"), "--rank", "0"};
  const auto trained = RunProcess(trainer, dir.path(), kPatience);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(trained->exit_code, 0) << trained->err;
  EXPECT_TRUE(FileExists(dir.File("run/checkpoints/step-10/MANIFEST")));
  EXPECT_TRUE(absl::StrContains(ReadFile(dir.File("run/ranks/0/metrics.jsonl")).value_or(""),
                                "\"test.accuracy\""));

  ASSERT_TRUE(RemoveTree(dir.File("run/checkpoints")).ok());
  ASSERT_TRUE(RemoveTree(dir.File("run/ranks")).ok());
  Process::Options supervisor;
  supervisor.args = {Yard::Binary("trainyard-supervisor"), "--run_dir", dir.File("run")};
  const auto supervised = RunProcess(supervisor, dir.path(), kPatience);
  ASSERT_TRUE(supervised.ok()) << supervised.status();
  EXPECT_EQ(supervised->exit_code, 0) << supervised->err;
  EXPECT_TRUE(absl::StrContains(ReadFile(dir.File("run/exit.json")).value_or(""), "succeeded"));
}

}  // namespace
}  // namespace trainyard::testing
