// Tests which options of the engine follow from a spec.
#include "worker/trainer/plan/model_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/unit/worker/trainer/gang_trainer.h"
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
