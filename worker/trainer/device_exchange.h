// Sums of arenas as a whole, once the step's last kernel is done: for arenas on devices, by way of
// whatever communicator reaches them.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/gradient_exchange.h"

namespace trainyard::trainer {

struct DeviceExchangeOptions {
  absl::Span<float> arena;
  // Sums the arena.
  parallel::Communicator* arena_communicator = nullptr;
  // Ballots; host memory. May be the same.
  parallel::Communicator* host = nullptr;
  // Waits until the arena is as Ready said.
  std::function<absl::Status()> synchronize;
};

// Borrows all of it. Never sharded; one term a rank, which SetPlan refuses to change (UNIMPLEMENTED
// for others).
std::unique_ptr<parallel::GradientExchange> MakeDeviceExchange(
    const DeviceExchangeOptions& options);

}  // namespace trainyard::trainer
