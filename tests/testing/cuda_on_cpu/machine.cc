// Chooses and runs the operations that wait on streams.
#include "tests/testing/cuda_on_cpu/machine.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/base/check.h"
#include "tests/testing/cuda_on_cpu/graph.h"

namespace trainyard::cuda_on_cpu {
namespace {

// This is about the length of the hardware's queues. When they are full, a launch waits.
constexpr size_t kQueueLength = 1024;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

// The time that the operation that this thread runs takes beyond a microsecond.
constinit thread_local int64_t taken_us = 0;

}  // namespace

constinit thread_local bool in_operation = false;
constinit thread_local int current_device = 0;

Machine& Machine::Get() {
  // It is never destroyed, since threads may still use it when the program ends.
  static Machine& machine = *new Machine;
  return machine;
}

Machine::Machine() {
  device_count = static_cast<int>(FromEnvironment("TRAINYARD_CUDA_DEVICES", 1));
  operation_us = FromEnvironment("TRAINYARD_CUDA_OPERATION_US", 1);
  for (int i = 0; i < kMaxDevices; ++i) {
    Device& device = devices[static_cast<size_t>(i)];
    device.index = i;
    auto legacy = std::make_unique<CUstream_st>();
    legacy->device = &device;
    legacy->is_legacy = true;
    device.streams.push_back(std::move(legacy));
  }
  Seed(static_cast<uint64_t>(FromEnvironment("TRAINYARD_CUDA_SEED", 1)));
}

void Machine::Seed(uint64_t seed) {
  seed_ = seed;
  kernels_ = 0;
  for (Device& device : devices) {
    device.random = Random(seed + static_cast<uint64_t>(device.index) * 0x9E3779B97F4A7C15);
  }
}

uint64_t Machine::NextSeed() {
  return Random(seed_ ^ (++kernels_ << 32)).Next();
}

cudaError_t Machine::DriverError() const {
  return device_count == kNoDriver ? cudaErrorInsufficientDriver
         : device_count == 0       ? cudaErrorNoDevice
         : broken != cudaSuccess   ? broken
                                   : cudaSuccess;
}

Device& Machine::CurrentDevice() {
  return devices[static_cast<size_t>(current_device)];
}

CUstream_st* Machine::Resolve(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return CurrentDevice().streams[0].get();
  }
  return streams.contains(handle) ? handle : nullptr;
}

void Machine::Push(CUstream_st* stream, Operation operation, Lock& lock) {
  Device& device = *stream->device;
  operation.ticket = next_ticket_++;
  const uint64_t ticket = operation.ticket;
  stream->queue.push_back(std::move(operation));
  if (stream->queue.size() > kQueueLength) {
    RunUntil(device, lock, [&] {
      return stream->queue.size() <= kQueueLength || stream->queue.front().ticket > ticket;
    });
  }
  // A device may also be fast: sometimes it has run ahead when the host comes back.
  if (device.random.Below(8) == 0) {
    for (uint64_t left = device.random.Below(4); left > 0 && !device.running; --left) {
      RunOne(device, lock, /*may_block=*/false);
    }
  }
}

bool Machine::Ready(const CUstream_st& stream) const {
  if (stream.queue.empty()) {
    return false;
  }
  const Operation& first = stream.queue.front();
  if (first.waits_for != nullptr && !first.waits_for->done) {
    return false;
  }
  const auto goes_before = [&](const CUstream_st& other) {
    return !other.queue.empty() && other.queue.front().ticket < first.ticket;
  };
  const auto& all = stream.device->streams;
  if (stream.is_legacy) {
    return std::none_of(all.begin(), all.end(), [&](const auto& other) {
      return other->IsBlocking() && goes_before(*other);
    });
  }
  return !(stream.IsBlocking() && goes_before(*all[0]));
}

bool Machine::RunOne(Device& device, Lock& lock, bool may_block) {
  std::vector<CUstream_st*> ready;
  for (const auto& stream : device.streams) {
    if (Ready(*stream) && (may_block || !stream->queue.front().may_block)) {
      ready.push_back(stream.get());
    }
  }
  if (ready.empty()) {
    return false;
  }
  // Streams run in bursts, so that one gets far ahead of another.
  CUstream_st* chosen = ready[device.random.Below(ready.size())];
  if (std::find(ready.begin(), ready.end(), device.last_run) != ready.end() &&
      device.random.Below(4) != 0) {
    chosen = device.last_run;
  }
  device.last_run = chosen;
  Operation& operation = chosen->queue.front();
  const std::function<void()>& work =
      operation.graph == nullptr ? operation.work : operation.graph->Draw(device.random);
  if (work) {
    bool has_ended = true;
    device.running = true;
    lock.unlock();
    in_operation = true;
    if (operation.attempt) {
      has_ended = operation.attempt();
    } else {
      work();
    }
    in_operation = false;
    lock.lock();
    device.running = false;
    device.clock_us += operation_us + std::exchange(taken_us, 0);
    if (!has_ended) {
      device.last_run = nullptr;
      changed.notify_all();
      changed.wait_for(lock, kAttemptPause);
      return true;
    }
  }
  if (operation.graph == nullptr || operation.graph->Ran()) {
    Finish(chosen, lock);
  }
  changed.notify_all();
  return true;
}

void Machine::Finish(CUstream_st* stream, Lock& lock) {
  Device& device = *stream->device;
  Operation finished = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (finished.completes != nullptr) {
    finished.completes->done = true;
    finished.completes->time_us = device.clock_us;
  }
  if (stream->is_destroyed && stream->queue.empty()) {
    if (device.last_run == stream) {
      device.last_run = nullptr;
    }
    std::erase_if(device.streams, [&](const auto& owned) { return owned.get() == stream; });
  }
  // The destructor of the work may call the runtime.
  lock.unlock();
  finished = {};
  lock.lock();
}

void Machine::RunUntil(Device& device, Lock& lock, const std::function<bool()>& done) {
  while (!done()) {
    if (device.running) {
      changed.wait(lock);
    } else if (!RunOne(device, lock, /*may_block=*/true)) {
      const std::shared_ptr<Completion> foreign = Foreign(device);
      // A wait is for something that was enqueued earlier, so no two operations wait for each
      // other.
      TY_CHECK(foreign != nullptr);
      RunUntil(*foreign->device, lock, [&] { return foreign->done; });
    }
  }
}

std::shared_ptr<Completion> Machine::Foreign(const Device& device) const {
  for (const auto& stream : device.streams) {
    if (!stream->queue.empty()) {
      const auto& waits_for = stream->queue.front().waits_for;
      if (waits_for != nullptr && !waits_for->done && waits_for->device != &device) {
        return waits_for;
      }
    }
  }
  return nullptr;
}

void Machine::Drain(CUstream_st* stream, Lock& lock) {
  const uint64_t end = next_ticket_;
  Device& device = *stream->device;
  // Another thread may destroy the stream meanwhile. It then disappears with its last operation.
  RunUntil(device, lock, [&] {
    const auto& all = device.streams;
    return std::none_of(all.begin(), all.end(), [&](const auto& other) {
      return other.get() == stream && !stream->queue.empty() && stream->queue.front().ticket < end;
    });
  });
}

void Machine::Drain(Device& device, Lock& lock) {
  const uint64_t end = next_ticket_;
  RunUntil(device, lock, [&] {
    const auto& all = device.streams;
    return std::none_of(all.begin(), all.end(), [&](const auto& stream) {
      return !stream->queue.empty() && stream->queue.front().ticket < end;
    });
  });
}

void SetSeed(uint64_t seed) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  machine.Seed(seed);
}

void SetDeviceCount(int count) {
  TY_CHECK(count >= kNoDriver && count <= kMaxDevices);
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  machine.device_count = count;
}

void TakeTime(int64_t microseconds) {
  taken_us += microseconds;
}

void BreakDevices(cudaError_t error) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  machine.broken = error;
}

void SetDeviceBytes(int64_t bytes) {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  machine.device_bytes = bytes;
}

}  // namespace trainyard::cuda_on_cpu
