// Gives the simulator of the shipped code an empty list of planted bugs.
#include "tests/sim/bugs.h"

namespace trainyard::sim {

const std::vector<Bug>& Bugs() {
  static const auto* none = new std::vector<Bug>();
  return *none;
}

}  // namespace trainyard::sim
