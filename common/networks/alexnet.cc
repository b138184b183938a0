// Writes AlexNet, layer by layer.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {

absl::StatusOr<layers::Stack> StackOf(const AlexnetSpec& spec) {
  struct Layer {
    int number;  // in `features`
    bool pool;
    layers::Conv2d conv;
  };
  const Layer layers[] = {
      {0, true, {.channels = 64, .kernel = 11, .stride = 4, .padding = 2}},
      {3, true, {.channels = 192, .kernel = 5, .padding = 2}},
      {6, false, {.channels = 384, .kernel = 3, .padding = 1}},
      {8, false, {.channels = 256, .kernel = 3, .padding = 1}},
      {10, true, {.channels = 256, .kernel = 3, .padding = 1}},
  };
  StackWriter writer(spec.input);
  LayerId x = writer.sample();
  for (const Layer& layer : layers) {
    x = writer.Relu(writer.Conv2d(absl::StrCat("features.", layer.number), x, layer.conv));
    if (layer.pool) x = writer.MaxPool(x, {.kernel = 3, .stride = 2});
  }
  x = writer.Dropout(writer.Flatten(x), spec.dropout);
  x = writer.Relu(writer.Linear("classifier.1", x, 4096));
  x = writer.Dropout(x, spec.dropout);
  x = writer.Relu(writer.Linear("classifier.4", x, 4096));
  writer.Linear("classifier.6", x, spec.classes);
  return std::move(writer).Finish();
}

}  // namespace trainyard::networks
