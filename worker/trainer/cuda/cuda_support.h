// Which GPU a rank uses, where plans are kept, and how GPUs talk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "worker/trainer/command_line.h"

namespace trainyard::trainer {

class CudaSupport final : public DeviceSupport {
 public:
  // The backend `cuda`, one for all who ask for it: what it measured once is measured.
  absl::Status Register(const DeviceFlags& flags) override;
  // By UUID. A rank whose device has none takes the first that the process sees.
  absl::Status Choose(run_dir::RankAssignment& rank) override;
  absl::StatusOr<int64_t> MemoryBytes() override;
  // Over NCCL where every rank has a GPU of its own and all connect, else by way of the host. Where
  // the transport asks for nccl, FAILED_PRECONDITION for ranks that share a GPU, or else NCCL's
  // error.
  absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeExchange(
      const DeviceGang& gang, DeviceExchangeRequest request) override;

 private:
  std::string description_;  // the text
};

}  // namespace trainyard::trainer
