// Joins the cuda backend's stream and its kernel for sums to the exchanges and links over device
// memory.
#include "worker/trainer/cuda/cuda_exchange.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/kernels/update.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/parallel/nccl/nccl_exchange.h"
#include "worker/parallel/staged/mirrored_exchange.h"
#include "worker/parallel/staged/staged_stage_link.h"
#include "worker/parallel/wire_exchange.h"
#include "worker/trainer/cuda/nccl_sum.h"
#include "worker/trainer/pipeline/pipeline_executable.h"
#include "worker/trainer/run/step_exchange.h"

namespace trainyard::trainer {
namespace {

absl::Status AddLeft(const float* left, float* sums, int64_t count, cudaStream_t stream) {
  engine::cuda::AddLeft(left, sums, count, stream);
  return engine::cuda::LaunchStatus("adding gradients");
}

absl::Status ToBf16(const float* from, void* to, int64_t count, cudaStream_t stream) {
  engine::cuda::ToBf16(from, to, count, stream);
  return engine::cuda::LaunchStatus("rounding gradients");
}

absl::Status FromBf16(const void* from, float* to, int64_t count, cudaStream_t stream) {
  engine::cuda::FromBf16(from, to, count, stream);
  return engine::cuda::LaunchStatus("widening gradients");
}

}  // namespace

absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeCudaExchange(
    std::shared_ptr<parallel::NcclCommunicator> nccl, DeviceExchangeRequest request) {
  const auto compute = static_cast<cudaStream_t>(request.executable.device_queue());
  TY_CHECK(compute != nullptr);
  if (nccl != nullptr && request.syncs_statistics) {
    TY_RETURN_IF_ERROR(request.executable.SumStatisticsBy(MakeNcclSum(nccl)));
  }
  if (nccl != nullptr) {
    parallel::NcclExchangeOptions options = {.memory = std::move(request.memory),
                                             .keeps_order = request.keeps_order,
                                             .finishes_steps = request.finishes_steps,
                                             .compute = compute,
                                             .add_left = AddLeft};
    if (request.in_bf16) {
      options.to_bf16 = ToBf16;
      options.from_bf16 = FromBf16;
    }
    return parallel::MakeNcclExchange(std::move(nccl), std::move(request.host), std::move(options));
  }
  if (request.in_bf16) WarnOfExchangeInF32("they go by way of the host");
  return parallel::MakeMirroredExchange(
      std::move(request.memory), compute,
      [&request](parallel::WireExchangeOptions mirrors)
          -> absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> {
        return parallel::MakeWireExchange(std::move(request.host), std::move(mirrors));
      });
}

absl::StatusOr<std::unique_ptr<parallel::StageLink>> MakeCudaLink(parallel::NcclLines nccl,
                                                                  DeviceLinkRequest request) {
  const auto compute = static_cast<cudaStream_t>(request.stage.device_queue());
  TY_CHECK(compute != nullptr);
  parallel::HostLines host = std::move(request.lines.host);
  const int slots = request.stage.slots();
  if (nccl.receives != nullptr) {
    return parallel::MakeNcclStageLink(std::move(nccl), std::move(host), slots, compute);
  }
  return parallel::MakeStagedStageLink(std::move(host), slots, request.stage.message_floats(),
                                       compute);
}

}  // namespace trainyard::trainer
