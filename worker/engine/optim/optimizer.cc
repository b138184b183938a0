#include "worker/engine/optim/optimizer.h"

#include "absl/strings/str_cat.h"

namespace trainyard::engine {

absl::Status ValidateOptimizer(const OptimizerSpec& spec) {
  if (!(spec.momentum >= 0 && spec.momentum < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sgd: momentum ", spec.momentum, "; expected a value in [0, 1)"));
  }
  if (spec.nesterov && spec.momentum == 0) {
    return absl::InvalidArgumentError("sgd: nesterov with momentum 0; expected momentum above 0");
  }
  if (!(spec.weight_decay >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sgd: weight_decay ", spec.weight_decay, "; expected at least 0"));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine
