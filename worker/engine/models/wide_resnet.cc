// Builds Wide ResNet, block by block.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/initializers.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

constexpr int64_t kStages = 3;
constexpr int64_t kBaseChannels = 16;

ValueId Conv(GraphBuilder& builder, const std::string& name, ValueId x, int64_t channels,
             int64_t kernel, int64_t stride) {
  return builder.Conv2d(name, x,
                        {.channels = channels,
                         .kernel = kernel,
                         .stride = stride,
                         .padding = kernel / 2,
                         .bias = false});
}

// Adds bn1 - relu - conv1 - bn2 - relu - conv2, plus the input. If the number of channels changes,
// it adds a 1x1 convolution of the input of conv1 instead.
ValueId Block(GraphBuilder& builder, const std::string& name, ValueId x, int64_t channels,
              int64_t stride, bool changes) {
  const ValueId seen = builder.Relu(builder.BatchNorm(name + ".bn1", x));
  ValueId y = Conv(builder, name + ".conv1", seen, channels, 3, stride);
  y = builder.Relu(builder.BatchNorm(name + ".bn2", y));
  y = Conv(builder, name + ".conv2", y, channels, 3, 1);
  if (changes) x = Conv(builder, name + ".convShortcut", seen, channels, 1, stride);
  return builder.Add(y, x);
}

}  // namespace

absl::StatusOr<Graph> BuildWideResnet(const WideResnetSpec& spec) {
  if (spec.depth < 10 || spec.depth % 6 != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("wide_resnet: depth ", spec.depth, "; expected 6 n + 4: 10, 16, 22, 28, 40"));
  }
  GraphBuilder builder(spec.input);
  ValueId x = Conv(builder, "conv1", builder.input(), kBaseChannels, 3, 1);
  int64_t in_channels = kBaseChannels;
  int64_t channels = kBaseChannels * spec.width;
  for (int64_t stage = 0; stage < kStages; ++stage, channels *= 2) {
    for (int64_t i = 0; i < (spec.depth - 4) / 6; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = Block(builder, absl::StrCat("block", stage + 1, ".layer.", i), x, channels, stride,
                channels != in_channels);
      in_channels = channels;
    }
  }
  x = builder.Relu(builder.BatchNorm("bn1", x));
  x = builder.Flatten(builder.GlobalAvgPool(x));
  builder.SoftmaxCrossEntropy(builder.Linear("fc", x, spec.classes));
  TY_ASSIGN_OR_RETURN(Graph graph, std::move(builder).Build());
  InitializeConvolutionsByFanOut(graph);
  return graph;
}

}  // namespace trainyard::engine
