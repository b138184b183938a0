// The reference backend: plain loops over the step graph, written to be read. It judges the others.
#pragma once

#include <memory>

#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

// The numbers of the arithmetic. Inputs, state at the port and the reduction arena are float in
// each case.
enum class Arithmetic { kF32, kF64 };

std::unique_ptr<Backend> MakeReferenceBackend(Arithmetic arithmetic);

}  // namespace trainyard::engine
