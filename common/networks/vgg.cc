// Writes VGG, stage by stage.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {
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

absl::StatusOr<layers::Stack> StackOf(const VggSpec& spec) {
  constexpr int64_t kChannels[] = {64, 128, 256, 512, 512};
  TY_ASSIGN_OR_RETURN(const std::vector<int> stages, StagesOf(spec.depth));
  StackWriter writer(spec.input);
  LayerId x = writer.sample();
  int number = 0;  // of the module in `features`
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (int i = 0; i < stages[stage]; ++i) {
      x = writer.Conv2d(absl::StrCat("features.", number++), x,
                        {.channels = kChannels[stage], .kernel = 3, .padding = 1});
      if (spec.batch_norm) x = writer.BatchNorm(absl::StrCat("features.", number++), x);
      x = writer.Relu(x);
      ++number;
    }
    x = writer.MaxPool(x, {.kernel = 2});
    ++number;
  }
  x = writer.Flatten(x);
  for (const char* name : {"classifier.0", "classifier.3"}) {
    x = writer.Dropout(writer.Relu(writer.Linear(name, x, 4096)), spec.dropout);
  }
  writer.Linear("classifier.6", x, spec.classes);
  return std::move(writer).Finish();
}

}  // namespace trainyard::networks
