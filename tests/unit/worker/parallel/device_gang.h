// Gangs over emulated devices, one for each rank.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "tests/unit/worker/parallel/gang.h"
#include "worker/parallel/nccl/nccl_communicator.h"

namespace trainyard::parallel {

// Floats in the memory of the current device.
class DeviceFloats {
 public:
  explicit DeviceFloats(size_t size);
  explicit DeviceFloats(absl::Span<const float> values);
  ~DeviceFloats();
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  absl::Span<float> span() const { return {data_, size_}; }
  std::vector<float> Read() const;

 private:
  float* data_ = nullptr;
  size_t size_ = 0;
};

void CheckCuda(cudaError_t error);

// Works like RunGang, with rank r on device r, over NCCL.
using NcclWork = std::function<absl::Status(NcclCommunicator&)>;
std::vector<absl::Status> RunNcclGang(int world_size, const NcclWork& work,
                                      absl::Duration timeout = absl::Seconds(20));

// Sums `values` over the ranks, and returns when the device has done it.
absl::Status AllReduce(NcclCommunicator& communicator, absl::Span<float> values);

}  // namespace trainyard::parallel
