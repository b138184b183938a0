// Builds VGG, stage by stage.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/initializers.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

// The numbers of convolutions in each of the five stages, by depth: configurations A, B, D and E of
// the paper.
absl::StatusOr<std::vector<int>> StagesOf(int64_t depth) {
  switch (depth) {
    case 11:
      return std::vector<int>{1, 1, 2, 2, 2};
    case 13:
      return std::vector<int>{2, 2, 2, 2, 2};
    case 16:
      return std::vector<int>{2, 2, 3, 3, 3};
    case 19:
      return std::vector<int>{2, 2, 4, 4, 4};
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("vgg: depth ", depth, "; expected 11, 13, 16 or 19"));
  }
}

}  // namespace

absl::StatusOr<Graph> BuildVgg(const VggSpec& spec) {
  constexpr int64_t kChannels[] = {64, 128, 256, 512, 512};
  TY_ASSIGN_OR_RETURN(const std::vector<int> stages, StagesOf(spec.depth));
  GraphBuilder builder(spec.input);
  ValueId x = builder.input();
  int number = 0;  // of the module in `features`
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (int i = 0; i < stages[stage]; ++i) {
      x = builder.Conv2d(absl::StrCat("features.", number++), x,
                         {.channels = kChannels[stage], .kernel = 3, .padding = 1});
      if (spec.batch_norm) x = builder.BatchNorm(absl::StrCat("features.", number++), x);
      x = builder.Relu(x);
      ++number;
    }
    x = builder.MaxPool(x, {.kernel = 2});
    ++number;
  }
  x = builder.Flatten(x);
  for (const char* name : {"classifier.0", "classifier.3"}) {
    x = builder.Dropout(builder.Relu(builder.Linear(name, x, 4096)), spec.dropout);
  }
  builder.SoftmaxCrossEntropy(builder.Linear("classifier.6", x, spec.classes));
  TY_ASSIGN_OR_RETURN(Graph graph, std::move(builder).Build());
  InitializeConvolutionsByFanOut(graph);
  InitializeLinears(graph, 0.01);
  InitializeBiases(graph, 0);
  return graph;
}

}  // namespace trainyard::engine
