// The choice of whether a library does two operations in one kernel.
#pragma once

namespace trainyard::engine {

// Says when two operations that a library can do in one kernel are done in one.
enum class Fusions {
  kWhereFaster,  // as measured; never where nothing is measured
  kAlways,
  kNever,
};

}  // namespace trainyard::engine
