// Tests which options of the engine follow from a spec.
#include "worker/trainer/plan/model_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/engine/graph/split.h"
#include "worker/engine/make_backend.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::trainer {
namespace {

using engine::Precision;
using ::testing::HasSubstr;

// A backend of which only the device matters.
class Bf16Device final : public engine::Backend {
 public:
  absl::string_view name() const override { return "bf16_device"; }
  Precision auto_precision() const override { return Precision::kBf16; }
  absl::StatusOr<std::unique_ptr<engine::Executable>> Compile(
      const engine::Graph& /*model*/, const engine::OptimizerSpec& /*optimizer*/,
      const engine::CompileOptions& /*options*/) override {
    return absl::UnimplementedError("it only tells its precision");
  }
  absl::StatusOr<engine::CompilePlan> Plan(const engine::Graph& /*model*/,
                                           const engine::OptimizerSpec& /*optimizer*/,
                                           const engine::CompileOptions& /*options*/) override {
    return absl::UnimplementedError("it only tells its precision");
  }
};

engine::CompileOptions OptionsOf(const std::string& train, const std::string& more = "",
                                 absl::string_view backend = "cpu") {
  JobText job;
  job.train = train;
  job.more = more;
  const auto spec = ParseSpec(job.Spec());
  EXPECT_TRUE(spec.ok()) << spec.status();
  const auto model = PrepareModel(*spec, {.backend = backend});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->options : engine::CompileOptions();
}

TEST(ModelSetup, OnlyBitwisePaysForTheSameBits) {
  EXPECT_FALSE(OptionsOf(R"({"epochs": 1})").deterministic);
  EXPECT_FALSE(OptionsOf(R"({"epochs": 1, "reproducibility": "REPRODUCIBILITY_STATISTICAL"})")
                   .deterministic);
  EXPECT_TRUE(
      OptionsOf(R"({"epochs": 1, "reproducibility": "REPRODUCIBILITY_BITWISE"})").deterministic);
}

TEST(ModelSetup, APrecisionThatTheSpecNamesIsTaken) {
  EXPECT_EQ(OptionsOf(R"({"epochs": 1, "precision": "PRECISION_F32"})").precision, Precision::kF32);
  EXPECT_EQ(OptionsOf(R"({"epochs": 1, "precision": "PRECISION_BF16"})").precision,
            Precision::kBf16);
  EXPECT_EQ(OptionsOf(R"({"epochs": 1, "precision": "PRECISION_TF32"})").precision,
            Precision::kTf32);
  EXPECT_EQ(OptionsOf(R"({"epochs": 1, "precision": "PRECISION_F16"})").precision, Precision::kF16);
}

TEST(ModelSetup, ByHandTheDeviceDecidesWhatAutoMeans) {
  engine::RegisterBackend("bf16_device", [] { return std::make_unique<Bf16Device>(); });
  EXPECT_EQ(OptionsOf(R"({"epochs": 1})").precision, Precision::kF32);
  EXPECT_EQ(OptionsOf(R"({"epochs": 1})", "", "reference").precision, Precision::kF32);
  EXPECT_EQ(
      OptionsOf(R"({"epochs": 1, "precision": "PRECISION_AUTO"})", "", "bf16_device").precision,
      Precision::kBf16);
  EXPECT_EQ(
      OptionsOf(R"({"epochs": 1, "precision": "PRECISION_F32"})", "", "bf16_device").precision,
      Precision::kF32);
}

// Every parameter has its slots on one rank. Other backends keep all slots on all ranks.
TEST(ModelSetup, RanksDivideTheSlotsOfAShardedOptimizer) {
  JobText job;
  job.train = R"({"epochs": 1, "global_batch": 12, "precision": "PRECISION_F32"})";
  job.more = R"(, "memory": {"shard_optimizer": true})";
  const auto spec = ParseSpec(job.Spec());
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<std::pair<int64_t, int64_t>> all;
  std::vector<int64_t> ends;
  for (int rank = 0; rank < 3; ++rank) {
    CompileTarget target = {.backend = "cuda", .rank = rank, .world_size = 3};
    const auto model = PrepareModel(*spec, target);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_FALSE(model->options.owned.empty());
    for (const engine::ElementRange& range : model->options.owned) {
      all.emplace_back(range.begin, range.end);
    }
    ends = ReadyEnds(model->graph);
    target.backend = "cpu";
    EXPECT_TRUE(PrepareModel(*spec, target)->options.owned.empty());
  }
  std::sort(all.begin(), all.end());
  int64_t end = 0;
  for (const auto& [begin, next] : all) {
    EXPECT_EQ(begin, end);
    end = next;
  }
  EXPECT_EQ(end, ends[ends.size() - 2]) << "the elements of all gradients";
  EXPECT_TRUE(PrepareModel(*spec, {.backend = "cuda"})->options.owned.empty()) << "one rank";
}

// The ranks of a stage divide the slots of its parameters, whatever the whole model has.
TEST(ModelSetup, RanksOfAStageDivideTheSlotsOfItsParameters) {
  JobText job;
  job.train = R"({"epochs": 1, "global_batch": 12, "precision": "PRECISION_F32"})";
  job.more =
      R"(, "devices": {"count": 4}, "stages": {"count": 2}, "memory": {"shard_optimizer": true})";
  const auto spec = ParseSpec(job.Spec());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto model = PrepareModel(*spec, {.backend = "cuda", .world_size = 2});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->options.owned.empty()) << "the stages are not known here";
  const auto stages =
      engine::SplitModel(model->graph, {engine::PossibleCuts(model->graph)[0].layer});
  ASSERT_TRUE(stages.ok()) << stages.status();
  for (const engine::Graph& stage : *stages) {
    const std::vector<int64_t> ends = ReadyEnds(stage);
    int64_t owned = 0;
    for (int rank = 0; rank < 2; ++rank) {
      for (const engine::ElementRange& range : OwnedRanges(*spec, "cuda", stage, rank, 2)) {
        EXPECT_LE(range.end, ends[ends.size() - 2]);
        owned += range.end - range.begin;
      }
    }
    EXPECT_EQ(owned, ends[ends.size() - 2]);
    EXPECT_TRUE(OwnedRanges(*spec, "cuda", stage, 0, 1).empty());
    EXPECT_TRUE(OwnedRanges(*spec, "cpu", stage, 0, 2).empty());
  }
}

TEST(ModelSetup, AutoOnAnUnknownBackendIsRefused) {
  const auto spec = ParseSpec(JobText().Spec());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(PrepareModel(*spec, {.backend = "abacus"}).status().message(),
              HasSubstr("backend 'abacus'"));
}

TEST(ModelSetup, OnAGpuNormsAreRecomputedOnlyToSaveMemory) {
  const std::string f32 = R"({"epochs": 1, "precision": "PRECISION_F32"})";
  const std::string recompute = R"(, "memory": {"recompute": true})";
  EXPECT_TRUE(OptionsOf(f32).passes.recompute_norms);
  EXPECT_FALSE(OptionsOf(f32).passes.recompute);
  EXPECT_FALSE(OptionsOf(f32, "", kCudaBackend).passes.recompute_norms);
  EXPECT_TRUE(OptionsOf(f32, recompute, kCudaBackend).passes.recompute_norms);
  EXPECT_TRUE(OptionsOf(f32, recompute, kCudaBackend).passes.recompute);
}

}  // namespace
}  // namespace trainyard::trainer
