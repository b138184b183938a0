// A CUDA device that the CPU emulates, for tests where there is no GPU. The library defines the
// CUDA runtime's own symbols, so the backend's host code and kernels run unchanged. It is made to
// find mistakes, not to be fast: work is queued and runs only when the host waits for it, in an
// order that is drawn from a seed and respects only what CUDA promises.
//
// This header is for tests, and for the emulations of other CUDA libraries. All functions may be
// called from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace trainyard::cuda_on_cpu {

// Appends `work` to the stream. If the stream is being captured, it is appended to the graph, and
// runs once for each launch of the graph, so it must be callable again. It runs on whichever thread
// waits for the device, and must not call the CUDA runtime. It may block until work of another
// device has arrived, if another thread of the host waits for that one, but not for work of its own
// device. Returns what a kernel launch on the stream would return. A caller who wants the error to
// stay for cudaGetLastError passes it to RecordError.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

// Is called by the emulations of libraries when a plan is made, or an algorithm is searched. Writes
// "LIBRARY on CPU makes a plan" to standard error if TRAINYARD_CUDA_TELLS_PLANS is set in the
// environment.
void TellPlan(const char* library);

// Appends work that waits for other devices, and lets other streams of its own device go on
// meanwhile. `attempt` is called again and again, with pauses, until it returns true, which ends
// the work; the call after that, from another launch of a graph, begins anew. Within a graph the
// other streams wait for it. Apart from that it is like Enqueue.
cudaError_t EnqueueAttempts(cudaStream_t stream, std::function<bool()> attempt);

// Lets so much time pass on the device while work runs that calls this. Events tell it. Without it
// each operation takes a microsecond.
void TakeTime(int64_t microseconds);

// Leaves `error`, unless it is cudaSuccess, for cudaGetLastError of this thread, and returns it.
cudaError_t RecordError(cudaError_t error);

// The bytes of device memory that were allocated and not freed, over all devices.
int64_t LiveBytes();

// The number of kernels that have run so far, including those of graphs.
int64_t KernelsLaunched();

// Counts what the host has launched on streams so far, other than into a graph. Work that libraries
// enqueue counts as kernels.
struct HostLaunches {
  int64_t kernels = 0;
  int64_t graphs = 0;
};
HostLaunches LaunchesByTheHost();

// The number of copies that streams were given so far. Those in graphs count at their capture.
int64_t CopiesEnqueued();

// The shape of the graph that was instantiated last. A fork is a node with several nodes after it,
// a join is a node with several nodes before it.
struct GraphShape {
  int64_t nodes = 0;
  int64_t forks = 0;
  int64_t joins = 0;
};
GraphShape LastGraphShape();

// Sets the seed that orders streams, nodes of graphs, blocks and threads from here on. At first it
// is TRAINYARD_CUDA_SEED of the environment, or 1.
void SetSeed(uint64_t seed);

// Sets the number of devices from here on, at most kMaxDevices. 0 stands for a host without a
// device, where every call returns cudaErrorNoDevice; kNoDriver stands for a host without a driver,
// where it returns cudaErrorInsufficientDriver. At first the number is TRAINYARD_CUDA_DEVICES of
// the environment, or 1.
void SetDeviceCount(int count);
inline constexpr int kMaxDevices = 16;
inline constexpr int kNoDriver = -1;

// Makes every call return `error` from here on, as after an illegal access. With cudaSuccess the
// devices work again.
void BreakDevices(cudaError_t error);

// Sets the memory of each device from here on. At first it is 8 GiB.
void SetDeviceBytes(int64_t bytes);

// By the clock of a device, which events read, each operation takes TRAINYARD_CUDA_OPERATION_US of
// the environment, or 1 us. A test can so make one process' device slower than another's.

}  // namespace trainyard::cuda_on_cpu
