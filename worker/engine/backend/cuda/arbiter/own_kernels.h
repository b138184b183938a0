// Lets our own kernels for convolutions and attention judge cuDNN's engines.
#pragma once

#include "worker/engine/backend/cuda/dnn/arbiter.h"

namespace trainyard::engine::cuda {

// Returns the only arbiter of this kind. It computes every problem that cuDNN is asked for.
const dnn::Arbiter& OwnKernels();

}  // namespace trainyard::engine::cuda
