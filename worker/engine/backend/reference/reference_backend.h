// Implements the reference backend: plain loops over the step graph, written to be read. The other
// backends are compared with it.
#pragma once

#include <memory>

#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

// The type of numbers in computations. Inputs, state at the port and the reduction arena are float
// in each case.
enum class Arithmetic { kF32, kF64 };

std::unique_ptr<Backend> MakeReferenceBackend(Arithmetic arithmetic);

}  // namespace trainyard::engine
