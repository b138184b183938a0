// The simulator of what ships has no planted bugs.
#include "tests/sim/bugs.h"

namespace trainyard::sim {

const std::vector<Bug>& Bugs() {
  static const auto* none = new std::vector<Bug>();
  return *none;
}

}  // namespace trainyard::sim
