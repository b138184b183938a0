// Writes ResNet, block by block.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {
namespace {

struct Family {
  bool bottleneck = false;
  int64_t channels = 64;        // of the stem and the first stage; each stage doubles them
  std::vector<int64_t> blocks;  // of each stage
};

absl::StatusOr<Family> FamilyOf(const ResnetSpec& spec) {
  switch (spec.depth) {
    case 18:
      return Family{false, 64, {2, 2, 2, 2}};
    case 34:
      return Family{false, 64, {3, 4, 6, 3}};
    case 50:
      return Family{true, 64, {3, 4, 6, 3}};
    case 101:
      return Family{true, 64, {3, 4, 23, 3}};
    case 20:
    case 32:
    case 44:
    case 56:
    case 110: {
      if (spec.stem != Stem::kCifar) {
        return absl::InvalidArgumentError(
            absl::StrCat("resnet: depth ", spec.depth, " is one of CIFAR; expected stem: cifar"));
      }
      const int64_t blocks = (spec.depth - 2) / 6;
      return Family{false, 16, {blocks, blocks, blocks}};
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("resnet: depth ", spec.depth,
                       "; expected 18, 34, 50, 101, or of CIFAR 20, 32, 44, 56, 110"));
  }
}

class ResnetWriter {
 public:
  explicit ResnetWriter(const ResnetSpec& spec) : spec_(spec), writer_(spec.input) {}

  layers::Stack Write(const Family& family) && {
    LayerId x = First(family.channels);
    channels_ = family.channels;
    int64_t width = family.channels;
    for (size_t stage = 0; stage < family.blocks.size(); ++stage, width *= 2) {
      for (int64_t i = 0; i < family.blocks[stage]; ++i) {
        const std::string name = absl::StrCat("layer", stage + 1, ".", i);
        x = Block(name, x, width, stage > 0 && i == 0 ? 2 : 1, family.bottleneck);
      }
    }
    x = writer_.Flatten(writer_.GlobalAvgPool(x));
    writer_.Linear("fc", x, spec_.classes);
    return std::move(writer_).Finish();
  }

 private:
  LayerId First(int64_t channels) {
    if (spec_.stem == Stem::kCifar) {
      return writer_.Relu(ConvNorm("conv1", "bn1", writer_.sample(), channels, 3, 1));
    }
    const LayerId x = writer_.Relu(ConvNorm("conv1", "bn1", writer_.sample(), channels, 7, 2));
    return writer_.MaxPool(x, {.kernel = 3, .stride = 2, .padding = 1});
  }

  // The convolution keeps height and width, divided by the stride.
  LayerId ConvNorm(const std::string& conv, const std::string& norm, LayerId x, int64_t channels,
                   int64_t kernel, int64_t stride) {
    x = writer_.Conv2d(conv, x,
                       {.channels = channels,
                        .kernel = kernel,
                        .stride = stride,
                        .padding = kernel / 2,
                        .bias = false});
    return writer_.BatchNorm(norm, x);
  }

  LayerId Block(const std::string& name, LayerId x, int64_t width, int64_t stride,
                bool bottleneck) {
    struct Layer {
      int64_t channels, kernel, stride;
    };
    const std::vector<Layer> layers =
        bottleneck ? std::vector<Layer>{{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}}
                   : std::vector<Layer>{{width, 3, stride}, {width, 3, 1}};
    LayerId y = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i > 0) y = writer_.Relu(y);
      y = ConvNorm(absl::StrCat(name, ".conv", i + 1), absl::StrCat(name, ".bn", i + 1), y,
                   layers[i].channels, layers[i].kernel, layers[i].stride);
    }
    const int64_t channels = layers.back().channels;
    if (stride != 1 || channels != channels_) {
      x = ConvNorm(absl::StrCat(name, ".downsample.0"), absl::StrCat(name, ".downsample.1"), x,
                   channels, 1, stride);
    }
    channels_ = channels;
    return writer_.Relu(writer_.Sum(y, x));
  }

  const ResnetSpec& spec_;
  StackWriter writer_;
  int64_t channels_ = 0;  // of the last block's output
};

}  // namespace

absl::StatusOr<layers::Stack> StackOf(const ResnetSpec& spec) {
  TY_ASSIGN_OR_RETURN(const Family family, FamilyOf(spec));
  return ResnetWriter(spec).Write(family);
}

}  // namespace trainyard::networks
