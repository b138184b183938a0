// Builds a network of linear layers, for demonstrations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {

absl::StatusOr<Graph> BuildMlp(const MlpSpec& spec) {
  GraphBuilder builder(spec.input);
  ValueId x = spec.input.size() > 1 ? builder.Flatten(builder.input()) : builder.input();
  int layer = 1;
  for (int64_t width : spec.hidden) {
    x = builder.Relu(builder.Linear(absl::StrCat("fc", layer++), x, width));
  }
  builder.SoftmaxCrossEntropy(builder.Linear(absl::StrCat("fc", layer), x, spec.classes));
  return std::move(builder).Build();
}

}  // namespace trainyard::engine
