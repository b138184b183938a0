#include "worker/trainer/cuda/cuda_exchange.h"

#include <utility>

#include "common/base/check.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/backend/cuda/kernels/update.h"
#include "worker/parallel/nccl/nccl_exchange.h"
#include "worker/parallel/staged/mirrored_exchange.h"
#include "worker/parallel/wire_exchange.h"

namespace trainyard::trainer {
namespace {

absl::Status AddLeft(const float* left, float* sums, int64_t count, cudaStream_t stream) {
  engine::cuda::AddLeft(left, sums, count, stream);
  return engine::cuda::LaunchStatus("adding gradients");
}

}  // namespace

absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeCudaExchange(
    DeviceExchangeRequest request) {
  auto* const executable = dynamic_cast<engine::cuda::CudaExecutable*>(&request.executable);
  TY_CHECK(executable != nullptr);
  auto* const nccl = dynamic_cast<parallel::NcclCommunicator*>(&request.device);
  if (nccl != nullptr) {
    return parallel::MakeNcclExchange(*nccl, std::move(request.host),
                                      {.memory = std::move(request.memory),
                                       .keeps_order = request.keeps_order,
                                       .compute = static_cast<cudaStream_t>(executable->device_queue()),
                                       .add_left = AddLeft});
  }
  return parallel::MakeMirroredExchange(
      std::move(request.memory), static_cast<cudaStream_t>(executable->device_queue()),
      [&request](parallel::WireExchangeOptions mirrors)
          -> absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> {
        return parallel::MakeWireExchange(std::move(request.host), std::move(mirrors));
      });
}

}  // namespace trainyard::trainer
