// Library handles of the emulated cuDNN: a stream, and proof that the handle is alive.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>

namespace trainyard::cuda_on_cpu::cudnn {

// Returns BAD_PARAM for anything but a living handle.
cudnnStatus_t CheckHandle(cudnnHandle_t handle);
cudaStream_t StreamOf(cudnnHandle_t handle);

// Counts descriptors and handles, for LiveCudnnObjects.
void CountObjects(int64_t change);

}  // namespace trainyard::cuda_on_cpu::cudnn
