// Tests the count of what a step launches: against the graph of the step on the emulated device,
// and against the table that docs/cuda.md shows.
#include "tests/bench/gpu/step_count.h"

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/match.h"
#include "common/base/files.h"
#include "tests/testing/cuda_on_cpu/cublaslt/cublaslt_on_cpu.h"
#include "tests/testing/paths.h"

namespace trainyard::engine::bench {
namespace {

struct Net {
  const char* name;
  int rows;
  Precision precision = Precision::kBf16;

  friend void PrintTo(const Net& net, std::ostream* out) {
    *out << net.name << ":" << net.rows << " " << PrecisionName(net.precision);
  }
};

class Kernels : public ::testing::TestWithParam<Net> {};

// Each kernel is a node of the graph. The emulated libraries take one node for each of their calls,
// and that is how a call of theirs counts.
TEST_P(Kernels, AreThoseOfTheGraph) {
  const auto timer = StepTimer::Create(
      {.net = GetParam().name, .rows = GetParam().rows, .precision = GetParam().precision});
  ASSERT_TRUE(timer.ok()) << timer.status();
  ASSERT_TRUE((*timer)->WarmUp(0).ok());
  const StepCount count = CountWork((*timer)->work(), RatesOfH200(GetParam().precision));
  EXPECT_EQ(count.total.kernels, (*timer)->graph_nodes()) << RenderCount(count);
}

INSTANTIATE_TEST_SUITE_P(Nets, Kernels,
                         ::testing::Values(Net{"smoke", 4}, Net{"smoke", 4, Precision::kF16},
                                           Net{"convnet", 2}, Net{"gpt2-smoke", 2},
                                           Net{"gpt2-smoke", 2, Precision::kF32}));

TEST(Kernels, AreMoreIfCublasRefusesEpilogues) {
  cuda_on_cpu::RefuseEpilogues(true);
  const auto timer = StepTimer::Create({.net = "gpt2-smoke", .rows = 2});
  ASSERT_TRUE(timer.ok()) << timer.status();
  ASSERT_TRUE((*timer)->WarmUp(0).ok());
  cuda_on_cpu::RefuseEpilogues(false);
  const StepCount count = CountWork((*timer)->work(), RatesOfH200(Precision::kBf16));
  EXPECT_EQ(count.total.kernels, (*timer)->graph_nodes()) << RenderCount(count);
  const absl::StatusOr<StepCount> fused = CountStep({.net = "gpt2-smoke", .rows = 2});
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_GT(count.total.kernels, fused->total.kernels);
}

TEST(CountWork, TakesTheLongerOfTheTimesForBytesAndForFlops) {
  const CountRates rates = {.bytes_per_second = 1e9,
                            .flops_per_second = 1e12,
                            .seconds_per_kernel = 1e-6,
                            .seconds_per_launch = 1e-5};
  const StepCount count = CountWork({{"a conv2d", "conv2d", 1, 3e9, 1e6, 5e5},
                                     {"b conv2d", "conv2d", 1, 1e6, 2e6},
                                     {"update", "update", 3, 0, 1e9}},
                                    rates);
  ASSERT_EQ(count.ops.size(), 2U);
  EXPECT_EQ(count.ops[0].op, "update");
  EXPECT_DOUBLE_EQ(count.ops[0].seconds, 1 + 3e-6);
  EXPECT_EQ(count.ops[1].calls, 2);
  EXPECT_DOUBLE_EQ(count.ops[1].seconds, 3e-3 + 5e-4 + 2e-3 + 2e-6);
  EXPECT_DOUBLE_EQ(count.ops[1].bytes, 3.5e6);
  EXPECT_EQ(count.total.kernels, 5);
  EXPECT_DOUBLE_EQ(count.total.seconds, 1 + 5.5e-3 + 5e-6 + 1e-5);
}

TEST(Docs, ShowWhatAStepLaunchesAndMoves) {
  const std::string page = *ReadFile(testing::SourcePath("docs/cuda.md"));
  const TimerOptions steps[] = {
      {.net = "resnet50", .rows = 256},
      {.net = "wrn-28-10", .rows = 128},
      {.net = "googlenet", .rows = 128},
      {.net = "gpt2", .rows = 16},
      {.net = "convnet", .rows = 64},
      {.net = "resnet50", .rows = 256, .precision = Precision::kF16},
      {.net = "wrn-28-10", .rows = 128, .precision = Precision::kF16},
      {.net = "resnet50", .rows = 256, .precision = Precision::kF16, .fusions = Fusions::kAlways},
      {.net = "wrn-28-10", .rows = 128, .precision = Precision::kF16, .fusions = Fusions::kAlways}};
  for (const TimerOptions& options : steps) {
    const absl::StatusOr<StepCount> count = CountStep(options);
    ASSERT_TRUE(count.ok()) << count.status();
    const std::string line = CountLine(options, *count);
    EXPECT_TRUE(absl::StrContains(page, line)) << "docs/cuda.md lacks this line:\n" << line;
  }
}

}  // namespace
}  // namespace trainyard::engine::bench
