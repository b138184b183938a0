// The reference backend: plain loops over the step graph, written to be read. It judges the others.
#pragma once

#include <memory>

#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

// Of the arithmetic. Inputs, state at the port and the reduction arena are float in either.
enum class Arithmetic { kF32, kF64 };

std::unique_ptr<Backend> MakeReferenceBackend(Arithmetic arithmetic);

}  // namespace trainyard::engine
