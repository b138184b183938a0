// Runs gangs over the emulated NCCL, and moves floats to and from devices.
#include "tests/unit/worker/parallel/device_gang.h"

#include <algorithm>
#include <memory>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "worker/parallel/nccl/device_handles.h"

namespace trainyard::parallel {
namespace {

absl::StatusOr<std::unique_ptr<NcclCommunicator>> ConnectAt(const Place& place) {
  CheckCuda(cudaSetDevice(place.rank));
  NcclOptions options;
  options.rank = place.rank;
  options.world_size = place.world_size;
  options.run_dir = place.run_dir;
  return ConnectNccl(options);
}

}  // namespace

void CheckCuda(cudaError_t error) {
  TY_CHECK(error == cudaSuccess);
}

DeviceFloats::DeviceFloats(size_t size) : size_(size) {
  void* memory = nullptr;
  CheckCuda(cudaMalloc(&memory, std::max<size_t>(1, size) * sizeof(float)));
  data_ = static_cast<float*>(memory);
}

DeviceFloats::DeviceFloats(absl::Span<const float> values) : DeviceFloats(values.size()) {
  if (values.empty()) return;
  CheckCuda(cudaMemcpy(data_, values.data(), size_ * sizeof(float), cudaMemcpyHostToDevice));
  // Other streams do not wait for the copy.
  CheckCuda(cudaStreamSynchronize(nullptr));
}

DeviceFloats::~DeviceFloats() {
  CheckCuda(cudaFree(data_));
}

std::vector<float> DeviceFloats::Read() const {
  std::vector<float> values(size_);
  if (size_ == 0) return values;
  CheckCuda(cudaMemcpy(values.data(), data_, size_ * sizeof(float), cudaMemcpyDeviceToHost));
  return values;
}

std::vector<absl::Status> RunNcclGang(int world_size, const NcclWork& work,
                                      absl::Duration timeout) {
  cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kMaxDevices);
  return RunPlaces(world_size, [&](const Place& place) -> absl::Status {
    TY_ASSIGN_OR_RETURN(const auto communicator, ConnectAt(place));
    communicator->set_timeout(timeout);
    return work(*communicator);
  });
}

absl::Status AllReduce(NcclCommunicator& communicator, absl::Span<float> values) {
  OwnedStream stream;
  OwnedEvent done;
  TY_RETURN_IF_ERROR(stream.Create());
  TY_RETURN_IF_ERROR(done.Create());
  absl::Status status = communicator.EnqueueAllReduce(values, stream.get());
  if (status.ok()) CheckCuda(cudaEventRecord(done.get(), stream.get()));
  if (status.ok()) status = communicator.Await(done.get());
  CheckCuda(cudaStreamSynchronize(stream.get()));
  return status;
}

}  // namespace trainyard::parallel
