// Tests the predicted times of convolutions on a machine whose speeds are known.
#include "worker/trainer/plan/roofline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <variant>

#include "common/base/check.h"
#include "worker/engine/graph/build_step.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::trainer {
namespace {

// Traffic takes no time here.
constexpr MachineSpeed kFiltering = {.flops_per_second = 1e9,
                                     .bytes_per_second = 1e18,
                                     .filtered_flops_per_second = 4e9,
                                     .wide_filtered_flops_per_second = 2e9};
constexpr MachineSpeed kDirect = {
    .flops_per_second = 1e9, .bytes_per_second = 1e18, .filtered_flops_per_second = 8e8};

struct Conv {
  int64_t in_channels;
  int64_t channels;
  int64_t side;
  int64_t stride = 1;
};

// Returns the FLOP/s that are predicted for a 3x3 convolution, and for its gradients, which must
// be as fast.
double FlopsPerSecond(const Conv& conv, const MachineSpeed& machine) {
  engine::GraphBuilder b({conv.in_channels, conv.side, conv.side});
  // The first layer has no gradient of its input.
  const engine::ValueId x =
      b.Conv2d("first", b.input(), {.channels = conv.in_channels, .kernel = 1});
  const engine::ValueId y = b.Conv2d(
      "conv", x, {.channels = conv.channels, .kernel = 3, .stride = conv.stride, .padding = 1});
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.GlobalAvgPool(y)), 2));
  const auto model = std::move(b).Build();
  TY_CHECK_OK(model.status());
  const engine::Graph graph = engine::BuildTrainingStep(*model, {}).graph;
  constexpr int64_t kRows = 8;
  double speed = 0;
  int nodes = 0;
  for (const engine::Node& node : graph.nodes) {
    const auto* attributes = std::get_if<engine::ConvAttributes>(&node.attributes);
    if (node.name != "conv" || attributes == nullptr) continue;
    const double flops = engine::NodeCost(graph, node, kRows).flops;
    const double found = flops / NodeSeconds(graph, node, kRows, machine);
    if (nodes++ > 0) {
      EXPECT_NEAR(found, speed, 1) << engine::OpName(node.op);
    }
    speed = found;
  }
  EXPECT_EQ(nodes, 3);
  return speed;
}

TEST(Roofline, FilteringSlowsDownWithTheNumberOfChannels) {
  EXPECT_NEAR(FlopsPerSecond({16, 16, 8}, kFiltering), 4e9, 1);
  EXPECT_NEAR(FlopsPerSecond({32, 32, 8}, kFiltering), 4e9, 1);
  EXPECT_NEAR(FlopsPerSecond({64, 128, 8}, kFiltering), 4e9 / std::sqrt(2.0), 1);
  EXPECT_NEAR(FlopsPerSecond({256, 256, 8}, kFiltering), 2e9, 1);
  EXPECT_NEAR(FlopsPerSecond({512, 512, 4}, kFiltering), 2e9, 1);
}

TEST(Roofline, FilteringComputesWholeTiles) {
  EXPECT_NEAR(FlopsPerSecond({32, 32, 7}, kFiltering), 4e9 * 49 / 64, 1);
  EXPECT_NEAR(FlopsPerSecond({512, 512, 2}, kFiltering), 2e9 / 4, 1);
  EXPECT_NEAR(FlopsPerSecond({512, 512, 1}, kFiltering), 2e9 / 16, 1);
}

TEST(Roofline, OtherConvolutionsAreAsFastAsProducts) {
  EXPECT_NEAR(FlopsPerSecond({3, 64, 32}, kFiltering), 1e9, 1);
  EXPECT_NEAR(FlopsPerSecond({32, 32, 8, /*stride=*/2}, kFiltering), 1e9, 1);
}

TEST(Roofline, ABackendThatDoesNotFilterHasNoTiles) {
  EXPECT_NEAR(FlopsPerSecond({32, 32, 8}, kDirect), 8e8, 1);
  EXPECT_NEAR(FlopsPerSecond({512, 512, 2}, kDirect), 8e8, 1);
}

}  // namespace
}  // namespace trainyard::trainer
