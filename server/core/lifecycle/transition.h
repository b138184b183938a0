// Defines what all state machines share: the names of their states, and their answers to an input.
// There are exactly three kinds of answers.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace trainyard::core {

// The machine goes to `next`, which may be the same state with other data. The caller carries the
// effects out in their order.
template <typename State, typename Effect>
struct Transition {
  State next;
  std::vector<Effect> effects;
};

// Nothing changes, as it should be: the message is repeated or late. `reason` says why.
struct Ignored {
  std::string reason;
};

// The input makes no sense in this state. The sender gets FAILED_PRECONDITION.
struct Refused {
  std::string reason;
};

template <typename State, typename Effect>
using StepResult = std::variant<Transition<State, Effect>, Ignored, Refused>;

// Returns the kName of the state that a machine is in.
template <typename... States>
absl::string_view NameOf(const std::variant<States...>& state) {
  return std::visit([]<typename Each>(const Each&) -> absl::string_view { return Each::kName; },
                    state);
}

}  // namespace trainyard::core
