// Owns memory, a stream and two events with which candidates are measured against each other. They
// end with the bench, so no handle may keep its stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
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
  // Returns memory that is filled with noise, null for no bytes, or RESOURCE_EXHAUSTED if the
  // device has no room.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  // Fills memory that Allocate returned with the same noise once more.
  absl::Status Fill(void* block, int64_t bytes);
  // Waits for the stream. Returns the bytes of a block, or of pieces all over a large one, with its
  // beginning and its end. Blocks of one size are sampled at the same places.
  absl::StatusOr<std::vector<std::byte>> Sample(const void* block, int64_t bytes);
  // Returns the time of one run of what `run` enqueues on stream(). It is taken from several runs,
  // after a first one that loads what it needs. Returns the error of `run`, or of the device.
  absl::StatusOr<double> Microseconds(const std::function<absl::Status()>& run);
  // Returns OK if the device still works after `failure`, and otherwise `failure`: some errors,
  // such as an illegal access, end all work of the process on the device.
  absl::Status CheckDevice(const absl::Status& failure);
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> blocks_;
};

}  // namespace trainyard::engine::cuda
