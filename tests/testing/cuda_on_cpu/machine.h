// Defines the emulated machine: devices, their streams, and the work that is queued on them.
//
// One mutex guards all of it; it is free while work runs. Work runs on the thread of the host that
// waits for it, one operation of a device at a time. The seed draws the order among all orders that
// CUDA allows.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/operation.h"
#include "tests/testing/cuda_on_cpu/random.h"

namespace trainyard::cuda_on_cpu {

struct Capture;
using Lock = std::unique_lock<std::mutex>;

struct Device {
  int index = 0;
  // streams[0] is the legacy default stream.
  std::vector<std::unique_ptr<CUstream_st>> streams;
  Random random{1};
  // True if work is running. The mutex is free meanwhile.
  bool running = false;
  CUstream_st* last_run = nullptr;
  int64_t clock_us = 0;
  int64_t live_bytes = 0;
};

// The longest time between two attempts of the same operation.
inline constexpr std::chrono::microseconds kAttemptPause(20);

enum class MemoryKind { kPageable, kPinned, kRegistered, kDevice };
struct Allocation {
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kPageable;
  int device = 0;
};

class Machine {
 public:
  static Machine& Get();

  // Returns cudaSuccess if there is a device.
  cudaError_t DriverError() const;
  Device& CurrentDevice();
  // Returns the stream that a handle names, or null. Handles 0 and 1 are the legacy default stream.
  CUstream_st* Resolve(cudaStream_t handle);
  // Returns a seed for one more kernel.
  uint64_t NextSeed();
  void Seed(uint64_t seed);

  // Queues the operation on a stream that is not captured.
  void Push(CUstream_st* stream, Operation operation, Lock& lock);
  // Runs the device's work until `done` returns true.
  void RunUntil(Device& device, Lock& lock, const std::function<bool()>& done);
  // Waits for everything that the stream, or the device, has been given so far.
  void Drain(CUstream_st* stream, Lock& lock);
  void Drain(Device& device, Lock& lock);
  // Runs one operation if it can; may_block says that it may be one that waits for others. Returns
  // false if there is none.
  bool RunOne(Device& device, Lock& lock, bool may_block);

  std::mutex mutex;
  std::condition_variable changed;
  int device_count = 1;
  int64_t operation_us = 1;          // by the clock of a device
  cudaError_t broken = cudaSuccess;  // what every call returns since BreakDevices
  int64_t device_bytes = int64_t{8} << 30;
  std::array<Device, kMaxDevices> devices;
  // The living handles, by which stale ones are recognised.
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::vector<std::shared_ptr<Capture>> captures;
  // The allocations by address. All other addresses are pageable memory of the host.
  std::map<uintptr_t, Allocation> allocations;
  GraphShape last_graph;
  int64_t copies_enqueued = 0;
  // The dynamic shared memory that kernels may use, if it is not 48 KiB.
  std::map<const void*, int> dynamic_shared_limits;

 private:
  Machine();
  bool Ready(const CUstream_st& stream) const;
  // Returns a completion of another device for which an operation of this one waits.
  std::shared_ptr<Completion> Foreign(const Device& device) const;
  void Finish(CUstream_st* stream, Lock& lock);

  uint64_t seed_ = 1;
  uint64_t kernels_ = 0;
  uint64_t next_ticket_ = 1;
  uint64_t next_to_enqueue_ = 1;
};

// True if the thread runs an operation, which may not call the runtime.
extern constinit thread_local bool in_operation;
extern constinit thread_local int current_device;

// Every function of the runtime does this first and last: it checks that there is a device, holds
// the mutex, and leaves its error for cudaGetLastError.
template <class Body>
cudaError_t Call(const Body& body) {
  if (in_operation) {
    return RecordError(cudaErrorNotPermitted);
  }
  Machine& machine = Machine::Get();
  Lock lock(machine.mutex);
  cudaError_t error = machine.DriverError();
  if (error == cudaSuccess) {
    error = body(machine, lock);
  }
  return RecordError(error);
}

}  // namespace trainyard::cuda_on_cpu

// The runtime's headers declare these structs outside of any namespace.

struct CUstream_st {
  trainyard::cuda_on_cpu::Device* device = nullptr;
  bool is_legacy = false;
  unsigned flags = 0;
  int priority = 0;
  // The front stays until it has run.
  std::deque<trainyard::cuda_on_cpu::Operation> queue;
  // True if the handle is gone. The stream is deleted when its work is done.
  bool is_destroyed = false;
  // The capture, and the nodes that come before the next one. They are set while the stream is
  // captured.
  std::shared_ptr<trainyard::cuda_on_cpu::Capture> capture;
  std::vector<CUgraphNode_st*> tail;

  // Returns true if the stream and the legacy default stream wait for each other.
  bool IsBlocking() const { return (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  // This is null until the event is recorded.
  std::shared_ptr<trainyard::cuda_on_cpu::Completion> completion;
  // These are set if the event was recorded in a capture, with the capture's nodes at that moment.
  std::shared_ptr<trainyard::cuda_on_cpu::Capture> capture;
  std::vector<CUgraphNode_st*> captured;
};
