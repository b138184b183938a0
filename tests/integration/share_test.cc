// Tests a pool that is shared, with the real binaries: preemption, drain and elastic jobs lose no
// step, and all users are told why their jobs wait.
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kLongEpochs = 100'000;

// Trains until it is asked to stop.
std::string LongSpec(int devices, const std::string& extra = "") {
  return SmallSpec("long", devices, kLongEpochs, 500, extra);
}
std::string UrgentSpec(int devices) {
  return SmallSpec("urgent", devices, 1, 500, "priority: 10\n");
}

class Share : public ::testing::Test {
 protected:
  static Yard::Options Options(int cpu_devices) {
    Yard::Options options;
    options.cpu_devices = cpu_devices;
    options.server_flags = {"--min_runtime", "0s"};
    return options;
  }

  // Every step was reported once, over all attempts: none was lost, none was done again.
  static void ExpectEveryStepOnce(Yard& yard, const std::string& job) {
    std::map<int64_t, int> times;
    for (const v1::MetricPoint& point : yard.Metrics(job, "train.loss")) ++times[point.step()];
    int64_t expected = times.empty() ? 0 : times.begin()->first;
    for (const auto& [step, count] : times) {
      EXPECT_EQ(step, expected++);
      EXPECT_EQ(count, 1) << "step " << step;
    }
  }
};

TEST_F(Share, AnUrgentJobTakesTheDeviceAndTheVictimGoesOnWhereItWas) {
  Yard yard(Options(1));
  yard.Start();
  const std::string victim = yard.Submit(LongSpec(1));
  ASSERT_TRUE(yard.WaitForStep(victim, 25));
  const std::string urgent = yard.Submit(UrgentSpec(1));
  EXPECT_EQ(yard.WaitForEnd(urgent).state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(yard.WaitForJob(victim, [](const Job& job) {
    return job.attempt() == 2 && job.state() == v1::JOB_STATE_RUNNING;
  }));
  const Job after = yard.GetJob(victim);
  EXPECT_EQ(after.preemptions(), 1);
  EXPECT_EQ(after.retries(), 0);
  EXPECT_EQ(yard.Cli({"cancel", victim}).exit_code, 0);
  yard.WaitForEnd(victim);
  ExpectEveryStepOnce(yard, victim);
  const ProcessResult events = yard.Cli({"show", victim, "--events"});
  EXPECT_TRUE(absl::StrContains(events.out, "CHECKPOINT_REQUESTED")) << events.out << events.err;
}

TEST_F(Share, ADrainedWorkersJobGoesOnElsewhere) {
  Yard yard(Options(1));
  yard.StartServer();
  yard.StartWorker("alpha");
  const std::string job = yard.Submit(LongSpec(1));
  ASSERT_TRUE(yard.WaitForStep(job, 25));
  yard.StartWorker("beta");
  const ProcessResult drained = yard.Cli({"drain", "alpha", "--reason", "new kernel"});
  EXPECT_EQ(drained.exit_code, 0) << drained.err;
  ASSERT_TRUE(yard.WaitForJob(job, [](const Job& shown) {
    return shown.state() == v1::JOB_STATE_RUNNING && shown.placement_size() == 1 &&
           shown.placement(0).worker() == "workers/beta";
  }));
  EXPECT_EQ(yard.GetJob(job).retries(), 0);
  EXPECT_EQ(yard.Cli({"cancel", job}).exit_code, 0);
  yard.WaitForEnd(job);
  ExpectEveryStepOnce(yard, job);
}

TEST_F(Share, AnElasticJobShrinksForAnUrgentOne) {
  Yard yard(Options(2));
  yard.Start();
  const std::string elastic =
      yard.Submit(absl::StrReplaceAll(LongSpec(7), {{"devices: 7", "devices: {min: 1, max: 2}"}}));
  ASSERT_TRUE(yard.WaitForStep(elastic, 25));
  EXPECT_EQ(yard.GetJob(elastic).placement_size(), 2);
  const std::string urgent =
      yard.Submit(SmallSpec("urgent", 1, kLongEpochs, 500, "priority: 10\n"));
  ASSERT_TRUE(yard.WaitForJob(elastic, [](const Job& job) {
    return job.attempt() == 2 && job.state() == v1::JOB_STATE_RUNNING;
  }));
  EXPECT_EQ(yard.GetJob(elastic).placement_size(), 1);
  EXPECT_EQ(yard.GetJob(elastic).preemptions(), 0);
  EXPECT_EQ(yard.Cli({"cancel", elastic, urgent}).exit_code, 0);
  yard.WaitForEnd(elastic);
  ExpectEveryStepOnce(yard, elastic);
}

// Returns how long training stood still before each later attempt, from the last step before it to
// its first one.
std::map<int, double> PausesBeforeAttempts(const std::vector<v1::MetricPoint>& losses) {
  const auto seconds = [](const v1::MetricPoint& point) {
    return static_cast<double>(point.time().seconds()) + point.time().nanos() * 1e-9;
  };
  std::map<int, double> pauses;
  for (size_t i = 1; i < losses.size(); ++i) {
    if (losses[i].attempt() == losses[i - 1].attempt()) continue;
    pauses[losses[i].attempt()] = seconds(losses[i]) - seconds(losses[i - 1]);
  }
  return pauses;
}

// Hash of the weights in the newest checkpoint.
std::string WeightsOf(Yard& yard, const std::string& job) {
  const nlohmann::json checkpoints = yard.CliJson({"checkpoints", "ls", job});
  EXPECT_FALSE(checkpoints.empty()) << job;
  if (checkpoints.empty()) return "";
  for (const auto& file : checkpoints.back()["files"]) {
    if (file["name"] == "model.safetensors") return file["hash"];
  }
  return "";
}

TEST_F(Share, AnElasticJobShrinksAndGrowsAgainAndEndsAsIfNobodyHadDisturbedIt) {
  Yard::Options options = Options(3);
  options.worker_flags = {"--share_cpus"};
  options.server_flags.insert(options.server_flags.end(), {"--grow_after", "1s"});
  Yard yard(std::move(options));
  yard.Start();
  const std::string spec = absl::StrReplaceAll(
      SmallSpec("elastic", 7, 60, 3000,
                "checkpoint: {every: 20 epochs}\nevaluate: {every: 20 epochs}\n"),
      {{"devices: 7", "devices: {min: 1, max: 3}"},
       {"batch: 50", "batch: 60, replicas: 6, reproducibility: bitwise"}});
  const std::string elastic = yard.Submit(spec);
  ASSERT_TRUE(yard.WaitForStep(elastic, 25));
  EXPECT_EQ(yard.GetJob(elastic).placement_size(), 3);
  const std::string urgent = yard.Submit(UrgentSpec(2));
  ASSERT_TRUE(yard.WaitForJob(elastic, [](const Job& job) {
    return job.attempt() == 2 && job.state() == v1::JOB_STATE_RUNNING;
  }));
  EXPECT_EQ(yard.GetJob(elastic).placement_size(), 1);
  EXPECT_EQ(yard.WaitForEnd(urgent).state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(yard.WaitForJob(elastic, [](const Job& job) {
    return job.attempt() == 3 && job.state() == v1::JOB_STATE_RUNNING;
  }));
  EXPECT_EQ(yard.GetJob(elastic).placement_size(), 3);
  EXPECT_EQ(yard.GetJob(elastic).preemptions(), 0);
  EXPECT_EQ(yard.GetJob(elastic).retries(), 0);
  ASSERT_EQ(yard.WaitForEnd(elastic).state(), v1::JOB_STATE_SUCCEEDED);
  ExpectEveryStepOnce(yard, elastic);
  const auto losses = yard.Metrics(elastic, "train.loss");
  for (const auto& [attempt, pause] : PausesBeforeAttempts(losses)) {
    RecordProperty(absl::StrCat("pause_ms_before_attempt_", attempt),
                   static_cast<int>(pause * 1000));
    EXPECT_LT(pause, 20) << "seconds before attempt " << attempt;
  }

  const std::string undisturbed = yard.Submit(spec);
  ASSERT_EQ(yard.WaitForEnd(undisturbed).state(), v1::JOB_STATE_SUCCEEDED);
  const auto expected = yard.Metrics(undisturbed, "train.loss");
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    ASSERT_EQ(losses[i].value(), expected[i].value()) << "at step " << losses[i].step();
  }
  EXPECT_EQ(WeightsOf(yard, elastic), WeightsOf(yard, undisturbed));
}

TEST_F(Share, EverybodyIsToldWhyHeWaitsAndWhatWouldHelp) {
  Yard yard(Options(2));
  yard.Start();
  const std::string holder = yard.Submit(LongSpec(1));
  ASSERT_TRUE(yard.WaitForStep(holder, 1));
  const std::string waiting = yard.Submit(LongSpec(2));
  const ProcessResult explained = yard.Cli({"explain", waiting});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_TRUE(absl::StrContains(explained.out, "jobs/1 holds 1")) << explained.out;
  EXPECT_TRUE(absl::StrContains(explained.out, "devices.count=1")) << explained.out;
  EXPECT_TRUE(absl::StrContains(yard.Cli({"ls"}).out, "needs 2 devices"));
  const ProcessResult top = yard.Cli({"top", "--once"});
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_TRUE(absl::StrContains(top.out, "alpha")) << top.out;
  EXPECT_EQ(yard.Cli({"cancel", holder, waiting}).exit_code, 0);
}

}  // namespace
}  // namespace trainyard::testing
