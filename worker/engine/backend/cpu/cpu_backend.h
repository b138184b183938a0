// The CPU backend: oneDNN for products and convolutions, our own vectorised loops for the rest.
#pragma once

#include <memory>

#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

std::unique_ptr<Backend> MakeCpuBackend();

}  // namespace trainyard::engine
