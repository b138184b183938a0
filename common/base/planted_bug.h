// Bugs that the simulator plants to prove that its checkers see them (tests/sim/bugs.cc lists
// them). Only the simulator's own build of the pure libraries defines TRAINYARD_PLANTED_BUGS;
// everywhere else TY_BUG is the constant false, and nothing of a bug is compiled.
//
//   if (TY_BUG(ignore_the_lease)) return;
#pragma once

#ifdef TRAINYARD_PLANTED_BUGS

#include <string_view>

namespace trainyard {

// The one that is at work; empty for none.
inline std::string_view planted_bug;

}  // namespace trainyard

#define TY_BUG(name) (::trainyard::planted_bug == #name)

#else

#define TY_BUG(name) false

#endif
