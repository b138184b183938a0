#include "tests/unit/worker/parallel/device_gang.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "worker/parallel/staged/staged_communicator.h"

namespace trainyard::parallel {
namespace {

// Tests speak of host memory; what they test has it on a device.
class OverDevice : public Communicator {
 public:
  explicit OverDevice(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  void set_timeout(absl::Duration timeout) override { inner_->set_timeout(timeout); }

  absl::Status AllReduce(absl::Span<float> values) override {
    const DeviceFloats device(values);
    const absl::Status status = inner_->AllReduce(device.span());
    return CopyBack(status, device, values);
  }
  absl::Status ReduceScatter(absl::Span<const float> values, absl::Span<float> block) override {
    const DeviceFloats device(values);
    const DeviceFloats device_block(block.size());
    const absl::Status status = inner_->ReduceScatter(device.span(), device_block.span());
    return CopyBack(status, device_block, block);
  }
  absl::Status AllGather(absl::Span<const float> block, absl::Span<float> values) override {
    const DeviceFloats device_block(block);
    const DeviceFloats device(values.size());
    const absl::Status status = inner_->AllGather(device_block.span(), device.span());
    return CopyBack(status, device, values);
  }
  absl::Status Broadcast(absl::Span<float> values, int root) override {
    const DeviceFloats device(values);
    const absl::Status status = inner_->Broadcast(device.span(), root);
    return CopyBack(status, device, values);
  }
  absl::Status Barrier() override { return inner_->Barrier(); }
  absl::Status AllToAll(absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive) override {
    std::deque<DeviceFloats> memory;
    std::vector<absl::Span<const float>> device_send;
    std::vector<absl::Span<float>> device_receive;
    for (const auto& part : send) device_send.push_back(memory.emplace_back(part).span());
    for (const auto& part : receive) {
      device_receive.push_back(memory.emplace_back(part.size()).span());
    }
    TY_RETURN_IF_ERROR(inner_->AllToAll(device_send, device_receive));
    for (size_t i = 0; i < receive.size(); ++i) {
      const std::vector<float> result = memory[send.size() + i].Read();
      std::copy(result.begin(), result.end(), receive[i].begin());
    }
    return absl::OkStatus();
  }
  absl::Status Send(absl::Span<const float> values, int peer) override {
    const DeviceFloats device(values);
    return inner_->Send(device.span(), peer);
  }
  absl::Status Receive(absl::Span<float> values, int peer) override {
    const DeviceFloats device(values.size());
    const absl::Status status = inner_->Receive(device.span(), peer);
    return CopyBack(status, device, values);
  }

 private:
  static absl::Status CopyBack(const absl::Status& status, const DeviceFloats& device,
                               absl::Span<float> values) {
    if (!status.ok()) return status;
    const std::vector<float> result = device.Read();
    std::copy(result.begin(), result.end(), values.begin());
    return status;
  }

  const std::unique_ptr<Communicator> inner_;
};

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

Transport NcclTransport() {
  return {"nccl", [](const Place& place) -> absl::StatusOr<std::unique_ptr<Communicator>> {
            auto communicator = ConnectAt(place);
            if (!communicator.ok()) return communicator.status();
            return std::make_unique<OverDevice>(*std::move(communicator));
          }};
}

Transport StagedTransport(int64_t chunk_elements) {
  return {"staged" + std::to_string(chunk_elements),
          [chunk_elements](const Place& place) -> absl::StatusOr<std::unique_ptr<Communicator>> {
            CheckCuda(cudaSetDevice(place.rank));
            auto staged = MakeStagedCommunicator(MakeLocalCommunicator(place.group, place.rank),
                                                 {.chunk_elements = chunk_elements});
            if (!staged.ok()) return staged.status();
            return std::make_unique<OverDevice>(*std::move(staged));
          }};
}

std::vector<absl::Status> RunNcclGang(int world_size, const NcclWork& work,
                                      absl::Duration timeout) {
  cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kMaxDevices);
  const Transport bare = {"nccl",
                          [](const Place& place) -> absl::StatusOr<std::unique_ptr<Communicator>> {
                            return ConnectAt(place);
                          }};
  return RunGang(
      bare, world_size,
      [&](Communicator& communicator) {
        return work(static_cast<NcclCommunicator&>(communicator));
      },
      timeout);
}

}  // namespace trainyard::parallel
