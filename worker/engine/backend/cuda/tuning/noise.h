// Makes noise for candidates to compute on while they are measured. Zeros would favour candidates
// that draw the most power: multiplying zeros takes almost none, and the device would keep a clock
// that it could not keep otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainyard::engine::cuda {

// Enqueues a fill of device memory with numbers of both signs and of magnitude 1/128 to 2,
// whichever of f32, f16 and bf16 it is read as. The numbers are the same each time.
cudaError_t FillWithNoise(void* memory, int64_t bytes, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
