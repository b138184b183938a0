// Compares convolutions with batch norm before or after them, as the emulated cuDNN computes them,
// with the same convolutions without it and with plain loops.
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/unit/worker/engine/backend/cuda/dnn_testing.h"
#include "worker/engine/backend/cuda/dnn/planner.h"

namespace trainyard::engine::cuda::dnn {
namespace {

using Halves = std::vector<uint16_t>;

Halves ToF16(const std::vector<float>& values) {
  Halves made(values.size());
  std::transform(values.begin(), values.end(), made.begin(),
                 [](float value) { return __half_as_ushort(__float2half(value)); });
  return made;
}

std::vector<float> FromF16(const Halves& values) {
  std::vector<float> made(values.size());
  std::transform(values.begin(), values.end(), made.begin(),
                 [](uint16_t bits) { return __half2float(__ushort_as_half(bits)); });
  return made;
}

// Two rows of 8 channels, to 16 at half the size.
ConvProblem Problem(ConvProblem::Kind kind) {
  ConvProblem p;
  p.kind = kind;
  p.type = Type::kF16;
  p.rows = 2;
  p.channels = p.x_stride = 8;
  p.height = 5;
  p.width = 6;
  p.out_channels = p.y_stride = 16;
  p.out_height = 3;
  p.out_width = 3;
  p.kernel = 3;
  p.stride = 2;
  p.padding = 1;
  return p;
}

void RunPlan(const ConvProblem& problem, const ConvMemory& memory) {
  const std::unique_ptr<Planner> planner = PlannerWith({.deterministic = true});
  const absl::StatusOr<const Plan*> plan = planner->Find(problem, Effort::kMeasure);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Memory workspace(static_cast<size_t>((*plan)->facts().workspace_bytes) + 256);
  const absl::Status status = (*plan)->Run(memory, workspace.get(), nullptr);
  ASSERT_TRUE(status.ok()) << status;
}

// Returns relu(x scale + shift), for 8 channels.
std::vector<float> Normalised(const std::vector<float>& x, const std::vector<float>& scale,
                              const std::vector<float>& shift) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = std::max(0.0F, x[i] * scale[i % 8] + shift[i % 8]);
  return y;
}

class NormPlans : public ::testing::Test {
 protected:
  const std::vector<float> scale_ = {1, 0.5F, -1, 2, 1, -0.5F, 1, 0.25F};
  const std::vector<float> shift_ = {0, 0.25F, -0.5F, 0, 1, 0.125F, -0.25F, 0};
  const Memory scale_memory_{ToF16(scale_)};
  const Memory shift_memory_{ToF16(shift_)};
};

// The border of the image is zero after the norm, and not before it.
TEST_F(NormPlans, ANormalisedInputIsThatOfAConvolutionThatReadsItWritten) {
  ConvProblem p = Problem(ConvProblem::Kind::kForward);
  p.statistics = true;
  const ConvSizes sizes = SizesOf(p);
  const std::vector<float> x = Values(sizes.x, 1);
  const Memory weight(ToF16(Values(sizes.weight, 2)));
  const Memory written(ToF16(Normalised(x, scale_, shift_)));
  const Memory input(ToF16(x));
  const Memory y(sizes.y * 2), expected(sizes.y * 2);
  const Memory sums(32 * sizeof(float)), expected_sums(32 * sizeof(float));
  RunPlan(p, {.x = written.get(),
              .weight = weight.get(),
              .y = expected.get(),
              .sum = expected_sums.floats(),
              .square_sum = expected_sums.floats() + 16});
  p.normalises = true;
  RunPlan(p, {.x = input.get(),
              .weight = weight.get(),
              .y = y.get(),
              .sum = sums.floats(),
              .square_sum = sums.floats() + 16,
              .scale = scale_memory_.get(),
              .shift = shift_memory_.get()});
  EXPECT_EQ(y.Read<uint16_t>(sizes.y), expected.Read<uint16_t>(sizes.y));
  EXPECT_EQ(sums.Read<float>(32), expected_sums.Read<float>(32));
  EXPECT_NE(expected_sums.Read<float>(32), std::vector<float>(32, 0));
}

TEST_F(NormPlans, TheGradientOfAWeightReadsANormalisedInput) {
  ConvProblem p = Problem(ConvProblem::Kind::kWeightGradient);
  const ConvSizes sizes = SizesOf(p);
  const std::vector<float> x = Values(sizes.x, 1);
  const Memory dy(ToF16(Values(sizes.y, 2)));
  const Memory written(ToF16(Normalised(x, scale_, shift_)));
  const Memory input(ToF16(x));
  const Memory dweight(sizes.weight * 2), expected(sizes.weight * 2);
  RunPlan(p, {.x = written.get(), .weight = expected.get(), .y = dy.get()});
  p.normalises = true;
  RunPlan(p, {.x = input.get(),
              .weight = dweight.get(),
              .y = dy.get(),
              .scale = scale_memory_.get(),
              .shift = shift_memory_.get()});
  EXPECT_EQ(dweight.Read<uint16_t>(sizes.weight), expected.Read<uint16_t>(sizes.weight));
}

TEST_F(NormPlans, TheGradientOfAnInputIsRectifiedAndSummedUp) {
  ConvProblem p = Problem(ConvProblem::Kind::kInputGradient);
  const ConvSizes sizes = SizesOf(p);
  const Memory weight(ToF16(Values(sizes.weight, 1)));
  const Memory dy(ToF16(Values(sizes.y, 2)));
  const Memory plain(sizes.x * 2), dx(sizes.x * 2);
  RunPlan(p, {.x = plain.get(), .weight = weight.get(), .y = dy.get()});
  const std::vector<float> gradient = FromF16(plain.Read<uint16_t>(sizes.x));

  const std::vector<float> input = Values(sizes.x, 3);
  const std::vector<float> mean = {0, 0.25F, -0.5F, 0, 0.125F, 0, 0, 0.5F};
  const std::vector<float> inverse = {1, 2, 0.5F, 1, 4, 1, 2, 1};
  const std::vector<float> bias = {0.0625F, -0.5F, 0.25F, -2, 2, 0.0625F, 0.1875F, 0.0625F};
  const Memory input_memory(ToF16(input));
  const Memory means(mean), inverses(inverse), weights(scale_), biases(bias);
  const Memory sums(16 * sizeof(float)), factors(24 * sizeof(float));
  p.norm_sums = true;
  RunPlan(p, {.x = dx.get(),
              .weight = weight.get(),
              .y = dy.get(),
              .norm = {.input = input_memory.get(),
                       .mean = means.floats(),
                       .inverse = inverses.floats(),
                       .weight = weights.floats(),
                       .bias = biases.floats(),
                       .dweight = sums.floats() + 8,
                       .dbias = sums.floats(),
                       .factors = factors.floats()}});
  std::vector<double> expected(16, 0);
  int zeros = 0;
  const std::vector<float> rectified = FromF16(dx.Read<uint16_t>(sizes.x));
  for (size_t i = 0; i < sizes.x; ++i) {
    const size_t c = i % 8;
    const float h = (input[i] - mean[c]) * inverse[c];
    const bool is_positive = h * scale_[c] + bias[c] > 0;
    EXPECT_EQ(rectified[i], is_positive ? gradient[i] : 0) << i;
    expected[c] += static_cast<double>(rectified[i]);
    expected[8 + c] += static_cast<double>(rectified[i]) * static_cast<double>(h);
    zeros += is_positive ? 0 : 1;
  }
  EXPECT_GT(zeros, 50);
  for (size_t c = 0; c < 16; ++c) {
    EXPECT_NEAR(static_cast<double>(sums.Read<float>(16)[c]), expected[c], 1e-2) << c;
  }
  // dx = a dy + b x + c is the whole gradient, of 60 pixels.
  const std::vector<float> f = factors.Read<float>(24);
  for (size_t c = 0; c < 8; ++c) {
    const auto scale = static_cast<double>(scale_[c] * inverse[c]);
    const double slope = -scale * static_cast<double>(inverse[c]) * expected[8 + c] / 60;
    EXPECT_NEAR(static_cast<double>(f[c]), scale, 1e-5);
    EXPECT_NEAR(static_cast<double>(f[8 + c]), slope, 1e-3);
    EXPECT_NEAR(static_cast<double>(f[16 + c]),
                -scale * expected[c] / 60 - slope * static_cast<double>(mean[c]), 1e-3);
  }
}

// So it is with cuDNN 9.19 (docs/cudnn_patterns.md).
TEST_F(NormPlans, AreThereForTheTypesThatCudnnHas) {
  const std::unique_ptr<Planner> planner = PlannerWith({});
  for (const Type type : {Type::kF16, Type::kBf16}) {
    for (const auto kind : {ConvProblem::Kind::kForward, ConvProblem::Kind::kInputGradient,
                            ConvProblem::Kind::kWeightGradient}) {
      ConvProblem p = Problem(kind);
      p.type = type;
      (kind == ConvProblem::Kind::kInputGradient ? p.norm_sums : p.normalises) = true;
      const bool has_plan = type == Type::kF16 || kind == ConvProblem::Kind::kForward;
      EXPECT_EQ(planner->Find(p, Effort::kMeasure).status().code(),
                has_plan ? absl::StatusCode::kOk : absl::StatusCode::kNotFound)
          << p.Key();
    }
  }
}

TEST_F(NormPlans, HaveKeysOfTheirOwn) {
  ConvProblem plain = Problem(ConvProblem::Kind::kForward);
  ConvProblem fused = plain;
  fused.normalises = true;
  EXPECT_NE(plain.Key(), fused.Key());
  EXPECT_NE(plain.Family(), fused.Family());
  plain = fused = Problem(ConvProblem::Kind::kInputGradient);
  fused.norm_sums = true;
  EXPECT_NE(plain.Key(), fused.Key());
}

TEST_F(NormPlans, AreRefusedWhereTheyMakeNoSense) {
  const auto status = [](const ConvProblem& problem) {
    return PlannerWith({})->Find(problem, Effort::kMeasure).status().code();
  };
  ConvProblem p = Problem(ConvProblem::Kind::kForward);
  p.normalises = p.relu = true;
  EXPECT_EQ(status(p), absl::StatusCode::kNotFound);
  p = Problem(ConvProblem::Kind::kForward);
  p.norm_sums = true;
  EXPECT_EQ(status(p), absl::StatusCode::kNotFound);
  p = Problem(ConvProblem::Kind::kInputGradient);
  p.normalises = true;
  EXPECT_EQ(status(p), absl::StatusCode::kNotFound);
  p = Problem(ConvProblem::Kind::kWeightGradient);
  p.normalises = p.f32_gradient = true;
  EXPECT_EQ(status(p), absl::StatusCode::kNotFound);
}

// Candidates that compute something else are found among these plans as well.
TEST_F(NormPlans, AreCompared) {
  for (const auto kind : {ConvProblem::Kind::kForward, ConvProblem::Kind::kInputGradient,
                          ConvProblem::Kind::kWeightGradient}) {
    ConvProblem p = Problem(kind);
    (kind == ConvProblem::Kind::kInputGradient ? p.norm_sums : p.normalises) = true;
    for (const bool is_spoiled : {false, true}) {
      cuda_on_cpu::SpoilRuns([&](int64_t engine) { return is_spoiled && engine == 1; });
      std::vector<PlanRecord> records;
      PlannerOptions options;
      options.scrutiny = {.verifies = true, .records = &records};
      EXPECT_TRUE(PlannerWith(options)->Find(p, Effort::kMeasure).ok());
      cuda_on_cpu::SpoilRuns({});
      ASSERT_EQ(records.size(), 1U);
      EXPECT_EQ(records.front().refused.size(), is_spoiled ? 1U : 0U) << p.Key();
    }
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
