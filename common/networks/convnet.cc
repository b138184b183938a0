// Writes a small convolutional network, for demonstrations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/layers/shapes.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {

absl::StatusOr<layers::Stack> StackOf(const ConvnetSpec& spec) {
  constexpr size_t kConvolutions = 2;
  if (spec.channels.size() != kConvolutions) {
    return absl::InvalidArgumentError(absl::StrCat("convnet: channels ",
                                                   layers::ShapeText(spec.channels),
                                                   "; expected two, of conv1 and conv2"));
  }
  StackWriter writer(spec.input);
  LayerId x = writer.sample();
  for (size_t i = 0; i < kConvolutions; ++i) {
    x = writer.Conv2d(
        absl::StrCat("conv", i + 1), x,
        {.channels = spec.channels[i], .kernel = 3, .padding = 1, .bias = !spec.batch_norm});
    if (spec.batch_norm) {
      x = writer.BatchNorm(absl::StrCat("bn", i + 1), x);
    }
    x = writer.MaxPool(writer.Relu(x), {.kernel = 2});
  }
  writer.Linear("fc", writer.Flatten(x), spec.classes);
  return std::move(writer).Finish();
}

}  // namespace trainyard::networks
