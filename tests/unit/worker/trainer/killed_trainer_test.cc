// Tests the real program, killed at a random step and started again: its results are byte for byte
// those of an undisturbed run. TRAINYARD_SEED repeats the draws of a test.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/wait.h"
#include "tests/unit/worker/data/token_files.h"
#include "tests/unit/worker/trainer/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/metrics.h"
#include "worker/run_dir/records.h"

namespace trainyard::trainer {
namespace {

using testing::Process;

// This is longer than anything takes on a busy machine.
constexpr absl::Duration kKillPatience = absl::Seconds(40);

const std::string kKilledBinary = testing::BinaryPath("trainyard-trainer");

constexpr int64_t kSteps = 300;
constexpr int64_t kCheckpointSteps = 30;
// The kill comes between the first checkpoint and this many steps later. Even later ones would now
// and then find a run that has ended.
constexpr int64_t kLastKill = 90;

// The models that are trained, and the rules. A moving average goes with each.
struct Case {
  const char* name;
  const char* network;
  const char* optimizer;
};
constexpr char kMlpOnGlyphs[] = R"("model": {"mlp": {"hidden": [16]}},
    "data": {"dataset": "glyphs", "train_size": 200, "test_size": 20,
             "augment": {"pad_crop": "2", "flip": true, "cutout": 4}})";
constexpr char kGpt2OnTokens[] = R"("model": {"gpt2": {"layers": 2, "heads": 2, "width": 8,
    "context": 6, "vocabulary": 11, "dropout": 0.1}}, "data": {"dataset": "tokens", "path": "made"})";
const Case kCases[] = {
    {"sgd", kMlpOnGlyphs, R"("sgd": {"lr": 0.05, "momentum": 0.9})"},
    {"nesterov", kMlpOnGlyphs, R"("sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": true})"},
    {"adamw", kMlpOnGlyphs, R"("adamw": {"lr": 0.01})"},
    {"lars", kMlpOnGlyphs, R"("lars": {"lr": 1, "trust_coefficient": 0.01})"},
    {"lamb", kMlpOnGlyphs, R"("lamb": {"lr": 0.01})"},
    {"gpt2", kGpt2OnTokens, R"("adamw": {"lr": 0.01, "decay_bias_and_norm": false})"},
};

uint64_t Seed() {
  const char* given = std::getenv("TRAINYARD_SEED");
  uint64_t seed = 0;
  return given != nullptr && absl::SimpleAtoi(given, &seed) ? seed : Rng::Real()->Next();
}

// A run directory of its own.
class Training : private RankProcesses {
 public:
  Training(const Case& which, int ranks) : RankProcesses(kKilledBinary), ranks_(ranks) {
    run_dir::Assignment assignment;
    TY_CHECK_OK(MakeDirectories(folder_.File("data/made")));
    folder_.Write("data/made/train.bin", data::RawTokens(data::LearnableTokens(2000, 11)));
    folder_.Write("data/made/val.bin", data::RawTokens(data::LearnableTokens(100, 11)));
    assignment.dataset_dir = folder_.File("data");
    assignment.spec_json = absl::StrCat(
        R"({"name": "killed", "train": {"steps": )", kSteps,
        R"(, "global_batch": 30}, "checkpoint": {"every": {"steps": )", kCheckpointSteps,
        R"(}}, "schedule": {"polynomial": {"power": 2}}, )", which.network, R"(,
            "optimizer": {"clip_norm": 1, "ema_decay": 0.99, )",
        which.optimizer, "}}");
    Assign(ranks, std::move(assignment));
  }

  const run_dir::RunDir& dir() const { return dir_; }
  std::string File(const std::string& name) const {
    return JoinPath(checkpoint::CheckpointPath(dir_.CheckpointsDir(), kSteps), name);
  }
  int64_t NewestCheckpoint() const {
    const std::vector<int64_t> steps = checkpoint::ListCheckpoints(dir_.CheckpointsDir());
    return steps.empty() ? 0 : steps.back();
  }

  // All ranks, afresh.
  std::vector<std::unique_ptr<Process>> Start() {
    TY_CHECK_OK(RemoveTree(dir_.RendezvousDir()));
    std::vector<std::unique_ptr<Process>> processes;
    for (int rank = 0; rank < ranks_; ++rank) processes.push_back(StartRank(rank));
    return processes;
  }
  void RunToTheEnd() {
    for (const auto& process : Start()) {
      const auto result = process->Wait(kKillPatience);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->exit_code, 0) << result->err;
    }
  }

  // Values by name and step, except those of times. A value may occur twice, because the killed run
  // had come further than its checkpoint; both must be the same.
  std::map<std::pair<std::string, int64_t>, double> Metrics() const {
    std::map<std::pair<std::string, int64_t>, double> metrics;
    const std::string text = ReadFile(dir_.MetricsPath(0)).value();
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const auto point = run_dir::DecodeMetricLine(line, dir_.MetricsPath(0));
      TY_CHECK_OK(point.status());
      if (point->name == "samples_per_s" || point->name == "data_wait_fraction" ||
          absl::StartsWith(point->name, "comm.") || absl::StartsWith(point->name, "compute.")) {
        continue;
      }
      const auto [known, is_new] = metrics.insert({{point->name, point->step}, point->value});
      EXPECT_EQ(known->second, point->value) << point->name << " at step " << point->step;
    }
    return metrics;
  }

 private:
  const int ranks_;
};

class KilledTrainerTest : public ::testing::TestWithParam<std::tuple<Case, int>> {};

TEST_P(KilledTrainerTest, GoesOnBitForBit) {
  const auto& [which, ranks] = GetParam();
  const uint64_t seed = Seed();
  const auto step = kCheckpointSteps + static_cast<int64_t>(seed % kLastKill);
  const auto victim = static_cast<size_t>(seed / kLastKill % static_cast<uint64_t>(ranks));
  const std::string draws =
      absl::StrCat("TRAINYARD_SEED=", seed, ": rank ", victim, " is killed at step ", step);
  std::printf("%s\n", draws.c_str());
  SCOPED_TRACE(draws);

  Training whole(which, ranks), killed(which, ranks);
  whole.RunToTheEnd();
  {
    const auto processes = killed.Start();
    // Checkpoints are the only thing that can be seen at once from outside.
    ASSERT_TRUE(testing::WaitUntil(
        [&] { return killed.NewestCheckpoint() >= step - step % kCheckpointSteps; }));
    processes[victim]->Signal(SIGKILL);
    for (const auto& process : processes) EXPECT_TRUE(process->Wait(kKillPatience).ok());
  }
  EXPECT_FALSE(FileExists(killed.File("MANIFEST"))) << "it had ended before it was killed";
  killed.RunToTheEnd();
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"}) {
    const auto expected = ReadFile(whole.File(name));
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(ReadFile(killed.File(name)).value_or(""), *expected) << name;
  }
  EXPECT_EQ(killed.Metrics(), whole.Metrics());
  EXPECT_EQ(run_dir::ReadRankResult(killed.dir(), 0)->metrics,
            run_dir::ReadRankResult(whole.dir(), 0)->metrics);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, KilledTrainerTest,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Values(1, 2)),
                         [](const auto& instance) {
                           return absl::StrCat(std::get<0>(instance.param).name, "_",
                                               std::get<1>(instance.param), "_ranks");
                         });

}  // namespace
}  // namespace trainyard::trainer
