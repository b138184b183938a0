// Writes a network of linear layers, for demonstrations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {

absl::StatusOr<layers::Stack> StackOf(const MlpSpec& spec) {
  StackWriter writer(spec.input);
  LayerId x = spec.input.size() > 1 ? writer.Flatten(writer.sample()) : writer.sample();
  int layer = 1;
  for (int64_t width : spec.hidden) {
    x = writer.Relu(writer.Linear(absl::StrCat("fc", layer++), x, width));
  }
  writer.Linear(absl::StrCat("fc", layer), x, spec.classes);
  return std::move(writer).Finish();
}

}  // namespace trainyard::networks
