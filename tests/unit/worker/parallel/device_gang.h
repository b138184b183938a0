// Gangs over emulated devices, one a rank.
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

// Take spans of host memory, which they copy to the device and back around each call.
Transport NcclTransport();
Transport StagedTransport(int64_t chunk_elements);

// As RunGang, with rank r on device r, and NCCL's own interface.
using NcclWork = std::function<absl::Status(NcclCommunicator&)>;
std::vector<absl::Status> RunNcclGang(int world_size, const NcclWork& work,
                                      absl::Duration timeout = absl::Seconds(20));

}  // namespace trainyard::parallel
