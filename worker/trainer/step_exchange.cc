#include "worker/trainer/step_exchange.h"

#include <utility>

#include "common/base/status_macros.h"
#include "worker/parallel/buckets.h"
#include "worker/parallel/wire_exchange.h"
#include "worker/trainer/device_exchange.h"
#include "worker/trainer/hosting_plan.h"

namespace trainyard::trainer {
namespace {

// By whichever communicator reaches the devices.
std::unique_ptr<parallel::GradientExchange> OverDevices(Training& training) {
  return MakeDeviceExchange({.arena = training.executable->reduction(),
                             .arena_communicator = training.communicators.device.get(),
                             .host = training.communicators.host.get(),
                             .synchronize = [executable = training.executable.get()] {
                               return executable->Synchronize();
                             }});
}

// On a line of its own, since the training talks on the first one meanwhile.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> OverWire(
    const parallel::Hosting& hosting, Training& training) {
  const run_dir::TrainSpec& train = training.spec.train;
  engine::Executable& executable = *training.executable;
  const int slots = train.is_bitwise ? SumSlotsNeeded(training.identity.replicas,
                                                      static_cast<int>(hosting.size()))
                                     : 0;
  parallel::WireExchangeOptions options;
  options.gradient_elements = static_cast<int64_t>(executable.parameters().size());
  options.buckets =
      parallel::PlanBuckets(training.ready_ends, options.gradient_elements, /*options=*/{});
  options.is_sharded = training.updates_ranges;
  options.reduction = executable.reduction();
  for (int slot = 0; slot < slots; ++slot) options.slots.push_back(executable.sums(slot));
  options.parameters = executable.parameters();
  options.plan = PlanExchange(training.identity.replicas, hosting, train.is_bitwise);
  options.term_slots = TermSlots(training, hosting);
  TY_ASSIGN_OR_RETURN(auto communicator,
                      training.communicators.connect_group(AllRanks("gradients", hosting)));
  return parallel::MakeWireExchange(std::move(communicator), std::move(options));
}

}  // namespace

absl::Status ConnectExchange(const parallel::Hosting& hosting, Training& training) {
  if (training.executable->memory_kind() == engine::MemoryKind::kDevice) {
    training.exchange = OverDevices(training);
    return absl::OkStatus();
  }
  training.updates_ranges = training.executable->updates_ranges();
  TY_ASSIGN_OR_RETURN(training.exchange, OverWire(hosting, training));
  return absl::OkStatus();
}

}  // namespace trainyard::trainer
