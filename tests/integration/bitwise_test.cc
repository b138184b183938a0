// Tests bitwise jobs with the real binaries: a spec ends with the same weights and has the same
// losses on any number and kind of devices, whether it runs in one piece or is moved to other
// devices in the middle.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/integration/yard.h"
#include "worker/agent/device_inventory.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

// The values by step. If two attempts have made the same step, the newest value counts.
using Curve = std::map<int64_t, double>;

constexpr int kEpochs = 4;
constexpr int kStepsOfEpoch = 35;

// There are more replicas than devices, and no number of devices divides them evenly. The last
// batch of an epoch has 28 rows.
std::string Spec(const std::string& name, int devices, int epochs = kEpochs,
                 absl::string_view reproducibility = "bitwise") {
  return absl::StrReplaceAll(
      SmallSpec(name, devices, epochs, 1660, "checkpoint: {every: 10 steps}\n"),
      {{"channels: [16, 32]", "channels: [8, 16], batch_norm: true"},
       {"batch: 50", absl::StrCat("batch: 48, replicas: 7, reproducibility: ", reproducibility)}});
}

struct Outcome {
  std::string weights;  // hash of model.safetensors in the newest checkpoint
  Curve losses;
  Curve evaluations;
};

Curve CurveOf(Yard& yard, const std::string& job, const std::string& metric) {
  Curve curve;
  for (const v1::MetricPoint& point : yard.Metrics(job, metric)) {
    curve[point.step()] = point.value();
  }
  return curve;
}

Outcome OutcomeOf(Yard& yard, const std::string& job) {
  const Job ended = yard.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << job << ": " << ended.failure().message();
  Outcome outcome;
  const nlohmann::json checkpoints = yard.CliJson({"checkpoints", "ls", job});
  if (!checkpoints.empty()) {
    for (const auto& file : checkpoints.back()["files"]) {
      if (file["name"] == "model.safetensors") outcome.weights = file["hash"];
    }
  }
  EXPECT_FALSE(outcome.weights.empty()) << job << ": " << checkpoints;
  outcome.losses = CurveOf(yard, job, "train.loss");
  outcome.evaluations = CurveOf(yard, job, "test.loss");
  return outcome;
}

void ExpectSame(const Outcome& found, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(found.weights, expected.weights) << what;
  EXPECT_EQ(found.losses, expected.losses) << what;
  EXPECT_EQ(found.evaluations, expected.evaluations) << what;
}

// Four devices of one thread each, on any number of processors.
Yard::Options EqualDevices() {
  Yard::Options options;
  options.cpu_devices = 4;
  options.worker_flags = {"--share_cpus"};
  return options;
}

TEST(Bitwise, OneToFourDevicesGiveTheSameWeightsAndLosses) {
  Yard yard(EqualDevices());
  yard.Start();
  const Outcome alone = OutcomeOf(yard, yard.Submit(Spec("on-1", 1)));
  EXPECT_EQ(alone.losses.size(), static_cast<size_t>(kEpochs * kStepsOfEpoch));
  EXPECT_FALSE(alone.evaluations.empty());
  for (const int devices : {2, 3, 4}) {
    const std::string job = yard.Submit(Spec(absl::StrCat("on-", devices), devices));
    ExpectSame(OutcomeOf(yard, job), alone, absl::StrCat("on ", devices));
    EXPECT_EQ(yard.GetJob(job).placement_size(), devices);
  }
  // Otherwise the equal hashes above would prove little.
  const std::string other = yard.Submit(Spec("other", 3, kEpochs, "statistical"));
  EXPECT_NE(OutcomeOf(yard, other).weights, alone.weights);
}

TEST(Bitwise, UnequalDevicesGiveTheWeightsOfEqualOnes) {
  const std::vector<int64_t> processors = agent::AllowedCpus();
  if (processors.size() < 2) GTEST_SKIP() << "needs two processors";
  Outcome expected;
  {
    Yard yard(EqualDevices());
    yard.Start();
    expected = OutcomeOf(yard, yard.Submit(Spec("equal", 2)));
  }
  // One device has two threads and both processors, one uses the first processor, and two share the
  // second.
  const int64_t first = processors[0], second = processors[1];
  Yard::Options options;
  options.cpu_layout =
      absl::StrCat("2@", first, "-", second, ",1@", first, ",1@", second, ",1@", second);
  Yard yard(std::move(options));
  yard.Start();
  for (const int devices : {2, 3, 4}) {
    const std::string job = yard.Submit(Spec(absl::StrCat("unequal-", devices), devices));
    ExpectSame(OutcomeOf(yard, job), expected, absl::StrCat("on ", devices, " unequal devices"));
  }
}

// Each replica has enough rows for its sums to be shared by threads.
std::string WideSpec(const std::string& name, int devices) {
  return absl::StrReplaceAll(SmallSpec(name, devices, /*epochs=*/1, 960),
                             {{"channels: [16, 32]", "channels: [32, 64], batch_norm: true"},
                              {"batch: 50", "batch: 96, replicas: 2, reproducibility: bitwise"}});
}

TEST(Bitwise, AnyNumberOfThreadsGivesTheSameWeights) {
  const std::vector<int64_t> processors = agent::AllowedCpus();
  if (processors.size() < 2) GTEST_SKIP() << "needs two processors";
  const std::string both = absl::StrCat("@", processors[0], "-", processors[1]);
  const std::string first = absl::StrCat("@", processors[0]);
  Outcome expected;
  for (const std::string& layout :
       {"1" + first, "2" + both, "3" + both, "3" + both + ",1" + first}) {
    const int devices = layout.find(',') == std::string::npos ? 1 : 2;
    Yard::Options options;
    options.cpu_layout = layout;
    Yard yard(std::move(options));
    yard.Start();
    const Outcome found = OutcomeOf(yard, yard.Submit(WideSpec("threads", devices)));
    if (expected.weights.empty()) expected = found;
    ExpectSame(found, expected, layout);
  }
}

// Stops the job after its step, and starts another from its checkpoint on this many devices.
std::string MoveAfter(Yard& yard, const std::string& job, int64_t step, int devices) {
  EXPECT_TRUE(yard.WaitForStep(job, step)) << job << " ended before it could be moved";
  EXPECT_EQ(yard.Cli({"suspend", job}).exit_code, 0);
  EXPECT_TRUE(yard.WaitForJob(
      job, [](const Job& seen) { return seen.state() == v1::JOB_STATE_SUSPENDED; }));
  const ProcessResult clone =
      yard.Cli({"clone", job, "--from", job, "--devices", absl::StrCat(devices), "--name",
                absl::StrCat("moved-to-", devices), "--yes", "-o", "name"});
  EXPECT_EQ(clone.exit_code, 0) << clone.err;
  return std::string(absl::StripAsciiWhitespace(clone.out));
}

TEST(Bitwise, AJobThatIsMovedToOtherNumbersOfDevicesEndsAsIfItHadStayed) {
  constexpr int kLongEpochs = 30;
  Yard yard(EqualDevices());
  yard.Start();
  const Outcome stayed = OutcomeOf(yard, yard.Submit(Spec("stayed", 2, kLongEpochs)));
  const std::string first = yard.Submit(Spec("moved", 2, kLongEpochs));
  const std::string second = MoveAfter(yard, first, 40, 3);
  const std::string third = MoveAfter(yard, second, 400, 1);
  Outcome moved = OutcomeOf(yard, third);
  EXPECT_LT(yard.Metrics(first, "train.loss").size(), stayed.losses.size());
  EXPECT_LT(yard.Metrics(second, "train.loss").size(), stayed.losses.size());
  // Each job has the steps after its checkpoint; together they have all steps.
  for (const std::string& before : {first, second}) {
    moved.losses.merge(CurveOf(yard, before, "train.loss"));
    moved.evaluations.merge(CurveOf(yard, before, "test.loss"));
  }
  ExpectSame(moved, stayed, "moved from 2 devices to 3, then to 1");
}

}  // namespace
}  // namespace trainyard::testing
