// Implements the CPU backend: oneDNN computes products and convolutions, and our own vectorised
// loops do the rest.
#pragma once

#include <memory>

#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

std::unique_ptr<Backend> MakeCpuBackend();

}  // namespace trainyard::engine
