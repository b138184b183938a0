// Compares convolutions that the emulated cuDNN computes with their formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/dnn_testing.h"
#include "worker/engine/backend/cuda/dnn/planner.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// Calls f(index in x, in the weight, in y) for every product of the convolution.
template <typename F>
void ForEachProduct(const ConvProblem& p, const F& f) {
  const int64_t inner = p.channels / p.groups;
  for (int64_t y = 0; y < p.rows * p.out_height * p.out_width * p.out_channels; ++y) {
    const int64_t k = y % p.out_channels;
    const int64_t pixel = y / p.out_channels;
    const int64_t column = pixel % p.out_width;
    const int64_t line = pixel / p.out_width % p.out_height;
    const int64_t row = pixel / p.out_width / p.out_height;
    const int64_t group = k / (p.out_channels / p.groups);
    for (int64_t w = 0; w < p.kernel * p.kernel * inner; ++w) {
      const int64_t c = w % inner;
      const int64_t v = line * p.stride - p.padding + w / inner / p.kernel * p.dilation;
      const int64_t u = column * p.stride - p.padding + w / inner % p.kernel * p.dilation;
      if (v < 0 || v >= p.height || u < 0 || u >= p.width) continue;
      f(((row * p.height + v) * p.width + u) * p.x_stride + group * inner + c,
        k * p.kernel * p.kernel * inner + w, pixel * p.y_stride + k);
    }
  }
}

absl::Status RunConv(const ConvProblem& problem, const ConvMemory& memory) {
  const std::unique_ptr<Planner> planner = PlannerWith({});
  const absl::StatusOr<const Plan*> plan = planner->Find(problem, Effort::kMeasure);
  if (!plan.ok()) return plan.status();
  const Memory workspace(static_cast<size_t>((*plan)->facts().workspace_bytes) + 256);
  return (*plan)->Run(memory, workspace.get(), nullptr);
}

TEST(ConvPlans, ForwardConvolutionsAddTheBiasAndRectify) {
  ConvProblem p = SmallConv();
  p.bias = p.relu = true;
  const ConvSizes sizes = SizesOf(p);
  const std::vector<float> x = Values(sizes.x, 1);
  const std::vector<float> weight = Values(sizes.weight, 2);
  const std::vector<float> bias = Values(4, 3);
  const std::vector<float> before(sizes.y, 99);
  const Memory x_memory(x);
  const Memory weight_memory(weight);
  const Memory bias_memory(bias);
  const Memory y_memory(before);
  const absl::Status status = RunConv(p, {.x = x_memory.get(),
                                          .weight = weight_memory.get(),
                                          .y = y_memory.get(),
                                          .bias = bias_memory.floats()});
  ASSERT_TRUE(status.ok()) << status;
  std::vector<float> expected(sizes.y, 0);
  ForEachProduct(p, [&](int64_t i, int64_t j, int64_t k) {
    expected[static_cast<size_t>(k)] += x[static_cast<size_t>(i)] * weight[static_cast<size_t>(j)];
  });
  const std::vector<float> y = y_memory.Read<float>(sizes.y);
  for (size_t i = 0; i < sizes.y; ++i) {
    const size_t channel = i % 8;
    // The elements beyond the channels do not belong to the tensor.
    const float value = channel < 4 ? std::max(0.0F, expected[i] + bias[channel]) : 99;
    EXPECT_NEAR(y[i], value, 1e-4) << i;
  }
}

TEST(ConvPlans, ForwardConvolutionsSumTheirOutput) {
  ConvProblem p = SmallConv();
  p.y_stride = 4;
  p.statistics = true;
  const ConvSizes sizes = SizesOf(p);
  const Memory x_memory(Values(sizes.x, 1));
  const Memory weight_memory(Values(sizes.weight, 2));
  const Memory y_memory(sizes.y * sizeof(float));
  const Memory sum(4 * sizeof(float));
  const Memory square_sum(4 * sizeof(float));
  const absl::Status status = RunConv(p, {.x = x_memory.get(),
                                          .weight = weight_memory.get(),
                                          .y = y_memory.get(),
                                          .sum = sum.floats(),
                                          .square_sum = square_sum.floats()});
  ASSERT_TRUE(status.ok()) << status;
  std::vector<float> sums(4, 0);
  std::vector<float> squares(4, 0);
  const std::vector<float> y = y_memory.Read<float>(sizes.y);
  for (size_t i = 0; i < y.size(); ++i) {
    sums[i % 4] += y[i];
    squares[i % 4] += y[i] * y[i];
  }
  for (size_t c = 0; c < 4; ++c) {
    EXPECT_NEAR(sum.Read<float>(4)[c], sums[c], 1e-3);
    EXPECT_NEAR(square_sum.Read<float>(4)[c], squares[c], 1e-2);
    EXPECT_GT(squares[c], 1);
  }
}

TEST(ConvPlans, InputGradientsAreRight) {
  ConvProblem p = SmallConv();
  p.kind = ConvProblem::Kind::kInputGradient;
  const ConvSizes sizes = SizesOf(p);
  const std::vector<float> dy = Values(sizes.y, 1);
  const std::vector<float> weight = Values(sizes.weight, 2);
  const Memory dx_memory(std::vector<float>(sizes.x, 99));
  const Memory weight_memory(weight);
  const Memory dy_memory(dy);
  const absl::Status status =
      RunConv(p, {.x = dx_memory.get(), .weight = weight_memory.get(), .y = dy_memory.get()});
  ASSERT_TRUE(status.ok()) << status;
  std::vector<float> expected(sizes.x, 0);
  ForEachProduct(p, [&](int64_t i, int64_t j, int64_t k) {
    expected[static_cast<size_t>(i)] += dy[static_cast<size_t>(k)] * weight[static_cast<size_t>(j)];
  });
  const std::vector<float> dx = dx_memory.Read<float>(sizes.x);
  for (size_t i = 0; i < sizes.x; ++i) {
    EXPECT_NEAR(dx[i], i % 12 < 8 ? expected[i] : 99, 1e-4) << i;
  }
}

TEST(ConvPlans, WeightGradientsAreOfTheTypeOfTheirFactorsOrF32) {
  for (const bool f32_gradient : {false, true}) {
    ConvProblem p = SmallConv();
    p.kind = ConvProblem::Kind::kWeightGradient;
    p.type = Type::kBf16;
    p.tf32 = false;
    p.f32_gradient = f32_gradient;
    const ConvSizes sizes = SizesOf(p);
    const std::vector<float> x = Values(sizes.x, 1);
    const std::vector<float> dy = Values(sizes.y, 2);
    const Memory x_memory(ToBf16(x));
    const Memory dy_memory(ToBf16(dy));
    const Memory dweight(sizes.weight * sizeof(float));
    const absl::Status status =
        RunConv(p, {.x = x_memory.get(), .weight = dweight.get(), .y = dy_memory.get()});
    ASSERT_TRUE(status.ok()) << status;
    std::vector<float> expected(sizes.weight, 0);
    ForEachProduct(p, [&](int64_t i, int64_t j, int64_t k) {
      expected[static_cast<size_t>(j)] += dy[static_cast<size_t>(k)] * x[static_cast<size_t>(i)];
    });
    const std::vector<float> made = f32_gradient ? dweight.Read<float>(sizes.weight)
                                                 : FromBf16(dweight.Read<uint16_t>(sizes.weight));
    for (size_t i = 0; i < sizes.weight; ++i) {
      EXPECT_NEAR(made[i], expected[i], f32_gradient ? 1e-4 : 8e-3 * std::abs(expected[i]) + 1e-4)
          << i;
    }
  }
}

TEST(ConvPlans, RefusesMemoryThatIsMissingOrNotAligned) {
  const ConvProblem p = SmallConv();
  const ConvSizes sizes = SizesOf(p);
  const Memory x(Values(sizes.x + 1, 1));
  const Memory weight(Values(sizes.weight, 2));
  const Memory y(sizes.y * sizeof(float));
  EXPECT_EQ(RunConv(p, {.x = x.get(), .weight = weight.get()}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunConv(p, {.x = x.floats() + 1, .weight = weight.get(), .y = y.get()}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
