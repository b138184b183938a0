// Defines an operation on a stream, and the record of its end.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace trainyard::cuda_on_cpu {

struct Device;
class GraphRun;

// Records that an operation has run. An event refers to one.
struct Completion {
  explicit Completion(Device* recorded_on) : device(recorded_on) {}

  Device* device;
  bool done = false;
  // The time of the device's clock, which each operation advances by a microsecond.
  int64_t time_us = 0;
};

struct Operation {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  // This may be empty.
  std::function<void()> work;
  // If this is not empty, it is called instead of `work` until it returns true. Other streams of
  // the device go on meanwhile.
  std::function<bool()> attempt = nullptr;
  // The work may wait for other devices, so it runs only when the host waits.
  bool may_block = false;
  // The operation cannot run before this is complete.
  std::shared_ptr<Completion> waits_for = nullptr;
  std::shared_ptr<Completion> completes = nullptr;
  // A launched graph, instead of `work`. Each of its nodes is a step of its own.
  std::shared_ptr<GraphRun> graph = nullptr;
  // Grows from each operation of the machine to the next.
  uint64_t ticket = 0;
};

}  // namespace trainyard::cuda_on_cpu
