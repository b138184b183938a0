// Where candidates are measured against each other: memory, a stream and two events, for as long as
// it lives. Its stream ends with it: no handle may keep it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard::engine::cuda {

class Bench {
 public:
  Bench() = default;
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench();

  absl::Status Open();
  // Filled with noise. RESOURCE_EXHAUSTED where the device has no room; null for no bytes.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  // Of one run of what `run` enqueues on stream(), from several after a first one, which loads what
  // it needs. The error of `run`, or of the device.
  absl::StatusOr<double> Microseconds(const std::function<absl::Status()>& run);
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> blocks_;
};

}  // namespace trainyard::engine::cuda
