// Writes Wide ResNet, block by block.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {
namespace {

constexpr int64_t kStages = 3;
constexpr int64_t kBaseChannels = 16;

LayerId Conv(StackWriter& writer, const std::string& name, LayerId x, int64_t channels,
             int64_t kernel, int64_t stride) {
  return writer.Conv2d(name, x,
                       {.channels = channels,
                        .kernel = kernel,
                        .stride = stride,
                        .padding = kernel / 2,
                        .bias = false});
}

// Adds bn1 - relu - conv1 - bn2 - relu - conv2, plus the input. If the number of channels changes,
// it adds a 1x1 convolution of the input of conv1 instead.
LayerId Block(StackWriter& writer, const std::string& name, LayerId x, int64_t channels,
              int64_t stride, bool changes) {
  const LayerId seen = writer.Relu(writer.BatchNorm(name + ".bn1", x));
  LayerId y = Conv(writer, name + ".conv1", seen, channels, 3, stride);
  y = writer.Relu(writer.BatchNorm(name + ".bn2", y));
  y = Conv(writer, name + ".conv2", y, channels, 3, 1);
  if (changes) x = Conv(writer, name + ".convShortcut", seen, channels, 1, stride);
  return writer.Sum(y, x);
}

}  // namespace

absl::StatusOr<layers::Stack> StackOf(const WideResnetSpec& spec) {
  if (spec.depth < 10 || spec.depth % 6 != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("wide_resnet: depth ", spec.depth, "; expected 6 n + 4: 10, 16, 22, 28, 40"));
  }
  StackWriter writer(spec.input);
  LayerId x = Conv(writer, "conv1", writer.sample(), kBaseChannels, 3, 1);
  int64_t in_channels = kBaseChannels;
  int64_t channels = kBaseChannels * spec.width;
  for (int64_t stage = 0; stage < kStages; ++stage, channels *= 2) {
    for (int64_t i = 0; i < (spec.depth - 4) / 6; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = Block(writer, absl::StrCat("block", stage + 1, ".layer.", i), x, channels, stride,
                channels != in_channels);
      in_channels = channels;
    }
  }
  x = writer.Relu(writer.BatchNorm("bn1", x));
  x = writer.Flatten(writer.GlobalAvgPool(x));
  writer.Linear("fc", x, spec.classes);
  return std::move(writer).Finish();
}

}  // namespace trainyard::networks
