// Defines the choice of whether a library does two operations in one kernel.
#pragma once

namespace trainyard::engine {

// Says if two operations that a library can do in one kernel are done in one.
enum class Fusions {
  kWhereFaster,  // as measured; never if nothing is measured
  kAlways,
  kNever,
};

}  // namespace trainyard::engine
