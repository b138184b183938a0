// Implements what the CUDA trainer adds to the CPU trainer: it chooses a rank's GPU, keeps plans,
// and connects GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "worker/trainer/command_line.h"

namespace trainyard::trainer {

class CudaSupport final : public DeviceSupport {
 public:
  // Registers the backend `cuda`. All users share one, so that nothing is measured twice.
  absl::Status Register(const DeviceFlags& flags) override;
  // Chooses by UUID. A rank whose device has none takes the first GPU that the process sees. The
  // rank may use the memory that the worker assigned to it, but no more than the device has,
  // divided by the ranks of this host that share it.
  absl::Status Choose(const run_dir::Assignment& assignment,
                      run_dir::RankAssignment& rank) override;
  absl::StatusOr<int64_t> MemoryBytes() override;
  // Connects over NCCL if every rank of the group has a GPU of its own and all can connect, else by
  // way of the host. If the transport is nccl, it returns FAILED_PRECONDITION for ranks that share
  // a GPU, or else NCCL's error.
  absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeExchange(
      const DeviceGang& gang, DeviceExchangeRequest request) override;
  // Does so for two stages, which may have a GPU each while others of the gang share theirs.
  absl::StatusOr<std::unique_ptr<parallel::StageLink>> MakeLink(const DeviceGang& gang,
                                                                DeviceLinkRequest request) override;

 private:
  std::string description_;  // the contents of the file that describes the device
};

}  // namespace trainyard::trainer
