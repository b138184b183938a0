// Builds a small convolutional network, for demonstrations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {

absl::StatusOr<Graph> BuildConvnet(const ConvnetSpec& spec) {
  constexpr size_t kConvolutions = 2;
  if (spec.channels.size() != kConvolutions) {
    return absl::InvalidArgumentError(absl::StrCat("convnet: channels ", ShapeString(spec.channels),
                                                   "; expected two, of conv1 and conv2"));
  }
  GraphBuilder builder(spec.input);
  ValueId x = builder.input();
  for (size_t i = 0; i < kConvolutions; ++i) {
    x = builder.Conv2d(
        absl::StrCat("conv", i + 1), x,
        {.channels = spec.channels[i], .kernel = 3, .padding = 1, .bias = !spec.batch_norm});
    if (spec.batch_norm) {
      x = builder.BatchNorm(absl::StrCat("bn", i + 1), x);
    }
    x = builder.MaxPool(builder.Relu(x), {.kernel = 2});
  }
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(x), spec.classes));
  return std::move(builder).Build();
}

}  // namespace trainyard::engine
