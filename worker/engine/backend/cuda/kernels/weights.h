// Handles parameters on the device: packed copies that products read, and gradients unpacked from
// them.
//
// Parameters, their gradients and the optimizer's slots lie flat in f32, each parameter at the
// offset of its gradient in the reduction arena. A convolution's weight lies there as [K, R, S, C],
// while the port gives and takes it as [K, C, R, S]. Everything else lies as the port says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/kernels/packed_weight.h"

namespace trainyard::engine::cuda {

// Writes packed copies in one launch. `weights` are `count` entries in device memory. first_chunk
// [count + 1] holds prefix sums of their numbers of chunks of kPackChunk elements, beginning at any
// number; there are `chunks` in all.
void PackWeights(const float* parameters, const PackedWeight* weights, const int32_t* first_chunk,
                 int64_t count, int64_t chunks, cudaStream_t stream);

// Copies the gradient of one parameter from packed form into the arena, or adds it there.
void UnpackGradient(const PackedGradient& gradient, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
