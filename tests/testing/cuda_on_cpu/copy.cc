// Implements copies and fills. Pageable memory of the host is read when the call is made and
// written before it returns; pinned memory is read and written when the operation runs. The data of
// a blocking copy from pageable memory may arrive after the call has returned, so other streams
// must not count on it.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/testing/cuda_on_cpu/append.h"
#include "tests/testing/cuda_on_cpu/capture.h"
#include "tests/testing/cuda_on_cpu/memory.h"

namespace trainyard::cuda_on_cpu {
namespace {

// Has `rows` rows of `width` bytes. Each begins a pitch after the one before.
struct Rows {
  void* to = nullptr;
  size_t to_pitch = 0;
  const void* from = nullptr;
  size_t from_pitch = 0;
  size_t width = 0;
  size_t rows = 0;

  size_t ToBytes() const { return (rows - 1) * to_pitch + width; }
  size_t FromBytes() const { return (rows - 1) * from_pitch + width; }
};

void Copy(const Rows& copy) {
  for (size_t row = 0; row < copy.rows; ++row) {
    std::memcpy(static_cast<char*>(copy.to) + row * copy.to_pitch,
                static_cast<const char*>(copy.from) + row * copy.from_pitch, copy.width);
  }
}

// Returns true if memory of this kind may be used as the direction says, on the device or on the
// host.
bool Fits(MemoryKind kind, bool is_device) {
  return is_device ? kind != MemoryKind::kPageable : kind != MemoryKind::kDevice;
}

cudaError_t CheckKinds(const Machine& machine, const Rows& copy, cudaMemcpyKind direction,
                       MemoryKind* to, MemoryKind* from) {
  if (copy.to == nullptr || copy.from == nullptr ||
      !KindOfRange(machine, copy.to, copy.ToBytes(), to) ||
      !KindOfRange(machine, copy.from, copy.FromBytes(), from)) {
    return cudaErrorInvalidValue;
  }
  switch (direction) {
    case cudaMemcpyHostToHost:
      return Fits(*to, false) && Fits(*from, false) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyHostToDevice:
      return Fits(*to, true) && Fits(*from, false) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToHost:
      return Fits(*to, false) && Fits(*from, true) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToDevice:
      return Fits(*to, true) && Fits(*from, true) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDefault:
      return cudaSuccess;
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t AppendCopy(Machine& machine, Lock& lock, const Rows& copy, cudaMemcpyKind direction,
                       CUstream_st* stream, bool is_blocking) {
  if (stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (copy.width == 0 || copy.rows == 0) {
    return cudaSuccess;
  }
  MemoryKind to = MemoryKind::kPageable;
  MemoryKind from = MemoryKind::kPageable;
  cudaError_t error = CheckKinds(machine, copy, direction, &to, &from);
  if (error != cudaSuccess) {
    return error;
  }
  ++machine.copies_enqueued;
  std::function<void()> work = [copy] { Copy(copy); };
  const bool is_captured = stream->capture != nullptr;
  const bool is_late = is_blocking && from == MemoryKind::kPageable && to == MemoryKind::kDevice;
  if (is_late && !is_captured) {
    machine.Drain(stream, lock);
  }
  if (from == MemoryKind::kPageable && !is_captured) {
    auto staged = std::make_shared<std::vector<char>>(copy.width * copy.rows);
    Copy({staged->data(), copy.width, copy.from, copy.from_pitch, copy.width, copy.rows});
    work = [copy, staged] {
      Copy({copy.to, copy.to_pitch, staged->data(), copy.width, copy.width, copy.rows});
    };
  }
  error = Append(machine, stream, {.type = cudaGraphNodeTypeMemcpy, .work = std::move(work)}, lock);
  const bool is_on_device = to == MemoryKind::kDevice && from == MemoryKind::kDevice;
  if (error == cudaSuccess && !is_captured &&
      (to == MemoryKind::kPageable || (is_blocking && !is_on_device && !is_late))) {
    machine.Drain(stream, lock);
  }
  return error;
}

cudaError_t AppendFill(Machine& machine, Lock& lock, void* to, int value, size_t bytes,
                       CUstream_st* stream) {
  MemoryKind kind = MemoryKind::kPageable;
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (!KindOfRange(machine, to, bytes, &kind) || kind == MemoryKind::kPageable) {
    return cudaErrorInvalidValue;
  }
  return Append(machine, stream,
                {.type = cudaGraphNodeTypeMemset,
                 .work = [to, value, bytes] { std::memset(to, value, bytes); }},
                lock);
}

}  // namespace
int64_t CopiesEnqueued() {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  return machine.copies_enqueued;
}

}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::AppendCopy;
using trainyard::cuda_on_cpu::AppendFill;
using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::CheckUnsafeCall;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind direction,
                            cudaStream_t stream) {
  return Call([&](Machine& machine, Lock& lock) {
    return AppendCopy(machine, lock, {to, bytes, from, bytes, bytes, 1}, direction,
                      machine.Resolve(stream), /*is_blocking=*/false);
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind direction) {
  return Call([&](Machine& machine, Lock& lock) {
    const cudaError_t error = CheckUnsafeCall(machine);
    return error != cudaSuccess
               ? error
               : AppendCopy(machine, lock, {to, bytes, from, bytes, bytes, 1}, direction,
                            machine.Resolve(nullptr), /*is_blocking=*/true);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind direction,
                              cudaStream_t stream) {
  return Call([&](Machine& machine, Lock& lock) {
    if (width > to_pitch || width > from_pitch) {
      return cudaErrorInvalidPitchValue;
    }
    return AppendCopy(machine, lock, {to, to_pitch, from, from_pitch, width, rows}, direction,
                      machine.Resolve(stream), /*is_blocking=*/false);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Call([&](Machine& machine, Lock& lock) {
    return AppendFill(machine, lock, to, value, bytes, machine.Resolve(stream));
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return Call([&](Machine& machine, Lock& lock) {
    const cudaError_t error = CheckUnsafeCall(machine);
    return error != cudaSuccess
               ? error
               : AppendFill(machine, lock, to, value, bytes, machine.Resolve(nullptr));
  });
}

}  // extern "C"
