// What candidates compute on while they are measured. Zeros would flatter those that draw the most
// power: multiplying them takes next to none, and the device keeps a clock that it could not keep.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace trainyard::engine::cuda {

// Fills memory of the device with numbers of both signs and of magnitude 1/128 to 2, whichever of
// f32, f16 and bf16 it is read as; the same ones each time. Enqueued on the stream.
cudaError_t FillWithNoise(void* memory, int64_t bytes, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
