// Builds AlexNet, layer by layer.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {

absl::StatusOr<Graph> BuildAlexnet(const AlexnetSpec& spec) {
  struct Layer {
    int number;  // in `features`
    layers::Conv2d conv;
    bool pool;
  };
  const Layer layers[] = {
      {0, {.channels = 64, .kernel = 11, .stride = 4, .padding = 2}, true},
      {3, {.channels = 192, .kernel = 5, .padding = 2}, true},
      {6, {.channels = 384, .kernel = 3, .padding = 1}, false},
      {8, {.channels = 256, .kernel = 3, .padding = 1}, false},
      {10, {.channels = 256, .kernel = 3, .padding = 1}, true},
  };
  GraphBuilder builder(spec.input);
  ValueId x = builder.input();
  for (const Layer& layer : layers) {
    x = builder.Relu(builder.Conv2d(absl::StrCat("features.", layer.number), x, layer.conv));
    if (layer.pool) x = builder.MaxPool(x, {.kernel = 3, .stride = 2});
  }
  x = builder.Dropout(builder.Flatten(x), spec.dropout);
  x = builder.Relu(builder.Linear("classifier.1", x, 4096));
  x = builder.Dropout(x, spec.dropout);
  x = builder.Relu(builder.Linear("classifier.4", x, 4096));
  builder.SoftmaxCrossEntropy(builder.Linear("classifier.6", x, spec.classes));
  return std::move(builder).Build();
}

}  // namespace trainyard::engine
