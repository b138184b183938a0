// A CUDA device that the CPU plays, for tests where there is no GPU. The library defines the CUDA
// runtime's own symbols, so the backend's host code and kernels run unchanged. It is made to find
// mistakes, not to be fast: work is queued and runs only when the host waits for it, in an order
// drawn from a seed that respects nothing but what CUDA promises.
//
// This header is for tests, and for the emulations of other CUDA libraries. All functions may be
// called from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace trainyard::cuda_on_cpu {

// Appends `work` to the stream, or to the graph that the stream is being captured into: then it
// runs once a launch of the graph, so it must be callable again. It runs on whichever thread waits
// for the device, and must not call the CUDA runtime. It may block until work of another device
// has arrived, if another thread of the host waits for that one, but not for work of its own.
// Returns what a kernel launch on the stream would return; a caller who wants it to stay for
// cudaGetLastError passes it to RecordError.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

// Leaves `error` for cudaGetLastError of this thread where it is one, and returns it.
cudaError_t RecordError(cudaError_t error);

// Bytes of device memory that were allocated and not freed, over all devices.
int64_t LiveBytes();

// Kernels that have run so far, those of graphs included.
int64_t KernelsLaunched();

// Sets the seed that orders streams, nodes of graphs, blocks and threads from here on. It is
// TRAINYARD_CUDA_SEED of the environment at first, or 1.
void SetSeed(uint64_t seed);

// From here on there are so many devices, at most kMaxDevices. 0 stands for a host without one:
// every call returns cudaErrorNoDevice; kNoDriver for a host without a driver, where it is
// cudaErrorInsufficientDriver. It is TRAINYARD_CUDA_DEVICES of the environment at first, or 1.
void SetDeviceCount(int count);
inline constexpr int kMaxDevices = 16;
inline constexpr int kNoDriver = -1;

// Memory of each device from here on. 8 GiB at first.
void SetDeviceBytes(int64_t bytes);

}  // namespace trainyard::cuda_on_cpu
