// Compares attention that the emulated cuDNN computes with the formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/dnn_testing.h"
#include "worker/engine/backend/cuda/dnn/attention_parts.h"
#include "worker/engine/backend/cuda/dnn/planner.h"

namespace trainyard::engine::cuda::dnn {
namespace {

constexpr int64_t kPositions = 128;
constexpr int64_t kHeads = 2;
constexpr int64_t kWidth = 8;

AttentionProblem SmallAttention(bool is_gradient) {
  return {.is_gradient = is_gradient,
          .type = Type::kBf16,
          .rows = 2,
          .positions = kPositions,
          .heads = kHeads,
          .width = kWidth};
}

// Attention of one head in f64, from x [positions, 3, heads, width] of its row.
struct Head {
  std::vector<double> q, k, v, dy;  // [positions, width]
  std::vector<double> y, dq, dk, dv;
  std::vector<double> logsum;
};

void Compute(Head& head) {
  const size_t size = kPositions * kWidth;
  head.y = head.dq = head.dk = head.dv = std::vector<double>(size, 0);
  head.logsum.resize(kPositions);
  const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
  const auto dot = [](const double* a, const double* b) {
    double sum = 0;
    for (int64_t i = 0; i < kWidth; ++i) sum += a[i] * b[i];
    return sum;
  };
  for (int64_t t = 0; t < kPositions; ++t) {
    std::vector<double> weights;
    double total = 0;
    for (int64_t s = 0; s <= t; ++s) {
      weights.push_back(std::exp(scale * dot(&head.q[static_cast<size_t>(t * kWidth)],
                                             &head.k[static_cast<size_t>(s * kWidth)])));
      total += weights.back();
    }
    head.logsum[static_cast<size_t>(t)] = std::log(total);
    double* const y = &head.y[static_cast<size_t>(t * kWidth)];
    for (int64_t s = 0; s <= t; ++s) {
      weights[static_cast<size_t>(s)] /= total;
      for (int64_t i = 0; i < kWidth; ++i) {
        y[i] += weights[static_cast<size_t>(s)] * head.v[static_cast<size_t>(s * kWidth + i)];
      }
    }
    const double* const dy = &head.dy[static_cast<size_t>(t * kWidth)];
    const double correction = dot(dy, y);
    for (int64_t s = 0; s <= t; ++s) {
      const double weight = weights[static_cast<size_t>(s)];
      const double ds =
          weight * (dot(dy, &head.v[static_cast<size_t>(s * kWidth)]) - correction) * scale;
      for (int64_t i = 0; i < kWidth; ++i) {
        const auto at_t = static_cast<size_t>(t * kWidth + i);
        const auto at_s = static_cast<size_t>(s * kWidth + i);
        head.dv[at_s] += weight * dy[i];
        head.dq[at_t] += ds * head.k[at_s];
        head.dk[at_s] += ds * head.q[at_t];
      }
    }
  }
}

// The head of x and dy, both with the positions in the outermost dimension.
Head HeadOf(const std::vector<float>& x, const std::vector<float>& dy, int64_t row, int64_t h) {
  Head head;
  for (int64_t t = 0; t < kPositions; ++t) {
    const int64_t at = row * kPositions + t;
    for (int64_t i = 0; i < kWidth; ++i) {
      const auto part = [&](int64_t which) {
        return x[static_cast<size_t>(((at * 3 + which) * kHeads + h) * kWidth + i)];
      };
      head.q.push_back(part(0));
      head.k.push_back(part(1));
      head.v.push_back(part(2));
      head.dy.push_back(dy[static_cast<size_t>((at * kHeads + h) * kWidth + i)]);
    }
  }
  Compute(head);
  return head;
}

class AttentionPlans : public ::testing::TestWithParam<bool> {};

TEST_P(AttentionPlans, AreRightForwardAndBackward) {
  const size_t elements = 2 * kPositions * kHeads * kWidth;
  const std::vector<float> x = Values(3 * elements, 1);
  const std::vector<float> dy = Values(elements, 4);
  const Memory x_memory(ToBf16(x));
  const Memory dy_memory(ToBf16(dy));
  const Memory y_memory(elements * sizeof(uint16_t));
  const Memory dx_memory(3 * elements * sizeof(uint16_t));
  const Memory logsum(2 * kHeads * kPositions * sizeof(float));
  const AttentionMemory memory = {.x = x_memory.get(),
                                  .y = y_memory.get(),
                                  .logsum = logsum.floats(),
                                  .dy = dy_memory.get(),
                                  .dx = dx_memory.get()};
  PlannerOptions options;
  options.deterministic = GetParam();
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  for (const bool is_gradient : {false, true}) {
    const absl::StatusOr<const Plan*> plan =
        planner->Find(SmallAttention(is_gradient), Effort::kMeasure);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Memory workspace(static_cast<size_t>((*plan)->facts().workspace_bytes) + 256);
    const absl::Status status = (*plan)->Run(memory, workspace.get(), nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  const std::vector<float> y = FromBf16(y_memory.Read<uint16_t>(elements));
  const std::vector<float> dx = FromBf16(dx_memory.Read<uint16_t>(3 * elements));
  const std::vector<float> sums = logsum.Read<float>(2 * kHeads * kPositions);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const Head head = HeadOf(x, dy, row, h);
      for (int64_t t = 0; t < kPositions; ++t) {
        EXPECT_NEAR(sums[static_cast<size_t>((row * kHeads + h) * kPositions + t)],
                    head.logsum[static_cast<size_t>(t)], 1e-3);
        const int64_t at = row * kPositions + t;
        for (int64_t i = 0; i < kWidth; ++i) {
          const auto inner = static_cast<size_t>(t * kWidth + i);
          const auto part = [&](int64_t which) {
            return dx[static_cast<size_t>(((at * 3 + which) * kHeads + h) * kWidth + i)];
          };
          EXPECT_NEAR(y[static_cast<size_t>((at * kHeads + h) * kWidth + i)], head.y[inner], 2e-2);
          EXPECT_NEAR(part(0), head.dq[inner], 3e-2);
          EXPECT_NEAR(part(1), head.dk[inner], 3e-2 + 1e-2 * std::abs(head.dk[inner]));
          EXPECT_NEAR(part(2), head.dv[inner], 3e-2 + 1e-2 * std::abs(head.dv[inner]));
        }
      }
    }
  }
}

// Runs both halves of an attention of `rows` rows, and returns y and dx.
std::vector<uint16_t> RunBoth(const std::unique_ptr<Planner>& planner, int64_t rows,
                              size_t gradient_parts) {
  const auto elements = static_cast<size_t>(rows * kPositions * kHeads * kWidth);
  const Memory x(ToBf16(Values(3 * elements, 1)));
  const Memory dy(ToBf16(Values(elements, 4)));
  const Memory y(elements * sizeof(uint16_t));
  const Memory dx(3 * elements * sizeof(uint16_t));
  const Memory logsum(static_cast<size_t>(rows * kHeads * kPositions) * sizeof(float));
  for (const bool is_gradient : {false, true}) {
    AttentionProblem problem = SmallAttention(is_gradient);
    problem.rows = rows;
    const auto parts = AttentionParts::Find(*planner, problem, Effort::kMeasure);
    EXPECT_TRUE(parts.ok()) << parts.status();
    if (!parts.ok()) return {};
    EXPECT_EQ(parts->count(), is_gradient ? gradient_parts : 1U);
    EXPECT_LE(parts->workspace_bytes(), planner->workspace_bytes_max());
    const Memory workspace(static_cast<size_t>(parts->workspace_bytes()) + 256);
    const absl::Status status = parts->Run(
        {.x = x.get(), .y = y.get(), .logsum = logsum.floats(), .dy = dy.get(), .dx = dx.get()},
        workspace.get(), nullptr);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  std::vector<uint16_t> results = y.Read<uint16_t>(elements);
  const std::vector<uint16_t> gradients = dx.Read<uint16_t>(3 * elements);
  results.insert(results.end(), gradients.begin(), gradients.end());
  return results;
}

// The deterministic gradient keeps those of the scores, which are 64 KiB for each row here.
TEST(AttentionParts, FitIntoTheWorkspaceAndGiveTheSameBits) {
  PlannerOptions options;
  options.deterministic = true;
  const std::vector<uint16_t> whole = RunBoth(PlannerWith(options), 5, 1);
  ASSERT_FALSE(whole.empty());
  options.workspace_bytes_max = 220 << 10;  // three rows
  EXPECT_EQ(RunBoth(PlannerWith(options), 5, 2), whole);
  options.workspace_bytes_max = 80 << 10;  // a single row
  EXPECT_EQ(RunBoth(PlannerWith(options), 5, 5), whole);
}

TEST(AttentionParts, AreNoneWhereNotEvenOneRowFits) {
  PlannerOptions options;
  options.deterministic = true;
  options.workspace_bytes_max = 60 << 10;
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  const absl::Status refused =
      AttentionParts::Find(*planner, SmallAttention(true), Effort::kMeasure).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound) << refused;
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("workspace"));
  EXPECT_TRUE(AttentionParts::Find(*planner, SmallAttention(false), Effort::kMeasure).ok());
}

INSTANTIATE_TEST_SUITE_P(Planner, AttentionPlans, ::testing::Bool());

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
