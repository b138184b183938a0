// Joins the engine's port for sums on a device to a communicator.
#include "worker/trainer/cuda/nccl_sum.h"

#include <utility>

namespace trainyard::trainer {
namespace {

class NcclSum final : public engine::DeviceSum {
 public:
  explicit NcclSum(std::shared_ptr<parallel::NcclCommunicator> nccl) : nccl_(std::move(nccl)) {}

  absl::Status Enqueue(absl::Span<float> values, void* queue) override {
    return nccl_->EnqueueAllReduce(values, static_cast<cudaStream_t>(queue));
  }
  absl::Status Await(void* event) override { return nccl_->Await(static_cast<cudaEvent_t>(event)); }

 private:
  const std::shared_ptr<parallel::NcclCommunicator> nccl_;
};

}  // namespace

std::shared_ptr<engine::DeviceSum> MakeNcclSum(std::shared_ptr<parallel::NcclCommunicator> nccl) {
  return std::make_shared<NcclSum>(std::move(nccl));
}

}  // namespace trainyard::trainer
