// Prefers memory that the ranks share, falls back to a wire between hosts, and leaves arenas on a
// device to the trainer of that device.
#include "worker/trainer/run/step_exchange.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/parallel/buckets.h"
#include "worker/parallel/shared/shared_exchange.h"
#include "worker/parallel/wire_exchange.h"
#include "worker/trainer/plan/hosting_plan.h"
#include "worker/trainer/run/agreement.h"
#include "worker/trainer/run/gang_hosting.h"

namespace trainyard::trainer {
namespace {

using parallel::GradientExchange;

bool IsInBf16(const RunSetup& setup) {
  return setup.spec.train().exchange_precision() == v1::PRECISION_BF16;
}

class Connector {
 public:
  Connector(const RunSetup& setup, const parallel::Hosting& hosting, StepStrategy& strategy,
            Communicators& lines, bool updates_ranges)
      : setup_(setup),
        hosting_(hosting),
        strategy_(strategy),
        executable_(strategy.executable()),
        lines_(lines),
        updates_ranges_(updates_ranges) {}

  // Makes an exchange in the memory in which the ranks compute. Returns FAILED_PRECONDITION on all
  // ranks if some rank lends none, or cannot map that of the others.
  absl::StatusOr<std::unique_ptr<GradientExchange>> OverSharedMemory() {
    const engine::Executable::SharedLayout layout = executable_.shared_layout();
    const std::vector<int> members = RanksOfStage("shared", setup_.place).members;
    parallel::Communicator& siblings = strategy_.siblings();
    // Ranks that cannot take part must say so, or the others would wait for them.
    const double lends[] = {layout.fd >= 0 ? 1.0 : 0.0};
    TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(siblings, lends));
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] > 0) continue;
      return absl::FailedPreconditionError(absl::StrCat("rank ", members[i], " lends no memory"));
    }
    TY_ASSIGN_OR_RETURN(parallel::SharedGang gang,
                        parallel::ConnectSharedGang(
                            {.fd = layout.fd,
                             .base = reinterpret_cast<std::byte*>(executable_.reduction().data()) -
                                     layout.reduction_offset,
                             .bytes = layout.bytes,
                             .reduction_offset = layout.reduction_offset,
                             .slot_offsets = layout.slot_offsets,
                             .parameters_offset = layout.parameters_offset},
                            members, siblings));
    return parallel::MakeSharedExchange(std::move(gang), {.buckets = Buckets(),
                                                          .gradient_elements = GradientElements(),
                                                          .is_sharded = updates_ranges_});
  }

  // Makes an exchange over a line of its own, since the training uses the first one at the same
  // time.
  absl::StatusOr<std::unique_ptr<GradientExchange>> OverWire() {
    TY_ASSIGN_OR_RETURN(auto communicator,
                        lines_.connect_group(RanksOfStage("gradients", setup_.place)));
    return parallel::MakeWireExchange(std::move(communicator), Memory());
  }

  // Makes an exchange in the way that the trainer of the device finds between the ranks.
  absl::StatusOr<std::unique_ptr<GradientExchange>> OverDevices() {
    parallel::Group group = RanksOfStage("gradients", setup_.place);
    TY_ASSIGN_OR_RETURN(auto host, lines_.connect_group(group));
    return lines_.make_device_exchange({.executable = executable_,
                                        .host = std::move(host),
                                        .group = std::move(group),
                                        .memory = Memory(),
                                        .keeps_order = setup_.is_bitwise,
                                        .in_bf16 = IsInBf16(setup_),
                                        .finishes_steps = setup_.place.stages > 1,
                                        .syncs_statistics = strategy_.model().syncs_statistics});
  }

 private:
  int64_t GradientElements() { return static_cast<int64_t>(executable_.parameters().size()); }

  std::vector<parallel::Bucket> Buckets() {
    return parallel::PlanBuckets(strategy_.model().ready_ends, GradientElements(), /*options=*/{});
  }

  // Returns the executable's memory, wherever it lies.
  parallel::WireExchangeOptions Memory() {
    const int slots =
        setup_.is_bitwise ? SumSlotsNeeded(setup_.replicas, setup_.place.pipelines) : 0;
    parallel::WireExchangeOptions options;
    options.gradient_elements = GradientElements();
    options.buckets = Buckets();
    options.is_sharded = updates_ranges_;
    options.reduction = executable_.reduction();
    for (int slot = 0; slot < slots; ++slot) {
      options.slots.push_back(executable_.sum_slots()->sums(slot));
    }
    options.parameters = executable_.parameters();
    options.plan = PlanExchange(setup_.replicas, hosting_, setup_.is_bitwise);
    options.term_slots = TermSlots(setup_, hosting_);
    return options;
  }

  const RunSetup& setup_;
  const parallel::Hosting& hosting_;
  StepStrategy& strategy_;
  engine::Executable& executable_;
  Communicators& lines_;
  const bool updates_ranges_;
};

}  // namespace

void WarnOfExchangeInF32(absl::string_view reason) {
  LogWarning("gradients are exchanged in f32, and not in bf16 as train.exchange_precision asks",
             {{"because", std::string(reason)}});
}

absl::StatusOr<StepExchange> ConnectExchange(const RunSetup& setup,
                                             const parallel::Hosting& hosting,
                                             StepStrategy& strategy, Communicators& lines) {
  engine::Executable& executable = strategy.executable();
  const bool is_on_device = executable.memory_kind() == engine::MemoryKind::kDevice;
  StepExchange made;
  // A device updates all its parameters in one launch, which is faster than updating parts of them
  // and receiving the others' parts. So it shards the update only if the spec asks for it.
  made.updates_ranges = executable.range_update() != nullptr &&
                        (!is_on_device || setup.spec.memory().shard_optimizer());
  if (setup.spec.memory().shard_optimizer() && !made.updates_ranges) {
    LogWarning("memory.shard_optimizer has no effect",
               {{"because", "the update needs all gradients at once"}});
  }
  Connector connector(setup, hosting, strategy, lines, made.updates_ranges);
  if (is_on_device) {
    TY_ASSIGN_OR_RETURN(made.exchange, connector.OverDevices());
    return made;
  }
  if (IsInBf16(setup)) WarnOfExchangeInF32("they are summed in the memory of hosts");
  auto shared = connector.OverSharedMemory();
  if (absl::IsFailedPrecondition(shared.status())) {
    LogInfo("gradients take the wire", {{"because", std::string(shared.status().message())}});
    TY_ASSIGN_OR_RETURN(made.exchange, connector.OverWire());
    return made;
  }
  TY_ASSIGN_OR_RETURN(made.exchange, std::move(shared));
  return made;
}

}  // namespace trainyard::trainer
