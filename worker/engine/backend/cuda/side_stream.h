// Implements the second stream of a step, on which branches of its program run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {

// A stream that forks from the main one and joins it by events. If the main stream is being
// captured, the fork draws this stream into the capture, and the join must come before its end.
class SideStream {
 public:
  // With Backing::kAddresses there is only the memory, for a plan.
  static absl::StatusOr<SideStream> Create(Backing backing);

  // Makes this stream wait for the work that `main` has so far.
  absl::Status Fork(cudaStream_t main) const;
  // Makes `main` wait for the work that this stream has so far.
  absl::Status Join(cudaStream_t main) const;

  cudaStream_t stream() const { return stream_.get(); }
  // Returns the tickets of launches on this stream (kNormTickets). Those of the main stream may be
  // in use at the same time.
  uint32_t* tickets() const { return tickets_.as<uint32_t>(); }
  int64_t device_bytes() const { return tickets_.bytes(); }

 private:
  Stream stream_;
  Event forked_, joined_;
  DeviceBuffer tickets_;
};

}  // namespace trainyard::engine::cuda
