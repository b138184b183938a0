// The planted bug that is at work in this process. A patch of tests/sim/bugs asks for its own bug:
//
//   if (sim::Planted("ignore_the_lease")) return;
//
// Only the patched copies of the sources see this file: the build includes it before them.
#pragma once

#include <string_view>

namespace trainyard::sim {

inline std::string_view planted_bug;  // empty: none

inline bool Planted(std::string_view name) {
  return planted_bug == name;
}

}  // namespace trainyard::sim
