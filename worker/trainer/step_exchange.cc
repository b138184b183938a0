#include "worker/trainer/step_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/parallel/buckets.h"
#include "worker/parallel/shared/shared_exchange.h"
#include "worker/parallel/wire_exchange.h"
#include "worker/trainer/agreement.h"
#include "worker/trainer/hosting_plan.h"

namespace trainyard::trainer {
namespace {

parallel::ExchangePlan PlanOf(const Training& training, const parallel::Hosting& hosting) {
  return PlanExchange(training.identity.replicas, hosting, training.spec.train.is_bitwise);
}

std::vector<parallel::Bucket> BucketsOf(Training& training) {
  return parallel::PlanBuckets(training.ready_ends,
                               static_cast<int64_t>(training.executable->parameters().size()),
                               /*options=*/{});
}

// In the memory that the ranks compute in. FAILED_PRECONDITION on all ranks where some rank lends
// none, or cannot map the others'.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> OverSharedMemory(
    const parallel::Hosting& hosting, Training& training) {
  engine::Executable& executable = *training.executable;
  const engine::Executable::SharedLayout layout = executable.shared_layout();
  const std::vector<int> members = Summands("shared", training, hosting).members;
  parallel::Communicator& group =
      training.pipeline.has_value() ? *training.pipeline->siblings : *training.communicators.host;
  // Those that cannot take part say so, or the others would wait for them.
  const double lends[] = {layout.fd >= 0 ? 1.0 : 0.0};
  TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(group, lends));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] > 0) continue;
    return absl::FailedPreconditionError(absl::StrCat("rank ", members[i], " lends no memory"));
  }
  TY_ASSIGN_OR_RETURN(parallel::SharedGang gang,
                      parallel::ConnectSharedGang(
                          {.fd = layout.fd,
                           .base = reinterpret_cast<std::byte*>(executable.reduction().data()) -
                                   layout.reduction_offset,
                           .bytes = layout.bytes,
                           .reduction_offset = layout.reduction_offset,
                           .slot_offsets = layout.slot_offsets,
                           .parameters_offset = layout.parameters_offset},
                          members, group));
  return parallel::MakeSharedExchange(
      std::move(gang), {.buckets = BucketsOf(training),
                        .gradient_elements = static_cast<int64_t>(executable.parameters().size()),
                        .is_sharded = training.updates_ranges});
}

// Of the executable's memory, wherever it lies.
parallel::WireExchangeOptions MemoryOf(const parallel::Hosting& hosting, Training& training) {
  const run_dir::TrainSpec& train = training.spec.train;
  engine::Executable& executable = *training.executable;
  const int slots = train.is_bitwise ? SumSlotsNeeded(training.identity.replicas,
                                                      static_cast<int>(hosting.size()))
                                     : 0;
  parallel::WireExchangeOptions options;
  options.gradient_elements = static_cast<int64_t>(executable.parameters().size());
  options.buckets = BucketsOf(training);
  options.is_sharded = training.updates_ranges;
  options.reduction = executable.reduction();
  for (int slot = 0; slot < slots; ++slot) {
    options.slots.push_back(executable.sum_slots()->sums(slot));
  }
  options.parameters = executable.parameters();
  options.plan = PlanOf(training, hosting);
  options.term_slots = TermSlots(training, hosting);
  return options;
}

// On a line of its own, since the training talks on the first one meanwhile.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> OverWire(
    const parallel::Hosting& hosting, Training& training) {
  TY_ASSIGN_OR_RETURN(auto communicator, training.communicators.connect_group(
                                             Summands("gradients", training, hosting)));
  return parallel::MakeWireExchange(std::move(communicator), MemoryOf(hosting, training));
}

// By whatever way the trainer of the device finds between the ranks.
absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> OverDevices(
    const parallel::Hosting& hosting, Training& training) {
  TY_ASSIGN_OR_RETURN(
      auto host, training.communicators.connect_group(Summands("gradients", training, hosting)));
  return training.communicators.make_device_exchange(
      {.executable = *training.executable,
       .host = std::move(host),
       .memory = MemoryOf(hosting, training),
       .keeps_order = training.spec.train.is_bitwise});
}

}  // namespace

absl::Status ConnectExchange(const parallel::Hosting& hosting, Training& training) {
  if (training.executable->memory_kind() == engine::MemoryKind::kDevice) {
    // A device updates all it has in one launch, faster than parts of it and the parts of others.
    training.updates_ranges =
        training.spec.memory.shard_optimizer && training.executable->range_update() != nullptr;
    TY_ASSIGN_OR_RETURN(training.exchange, OverDevices(hosting, training));
    return absl::OkStatus();
  }
  training.updates_ranges = training.executable->range_update() != nullptr;
  auto shared = OverSharedMemory(hosting, training);
  if (absl::IsFailedPrecondition(shared.status())) {
    LogInfo("gradients take the wire", {{"because", std::string(shared.status().message())}});
    TY_ASSIGN_OR_RETURN(training.exchange, OverWire(hosting, training));
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(training.exchange, std::move(shared));
  return absl::OkStatus();
}

}  // namespace trainyard::trainer
