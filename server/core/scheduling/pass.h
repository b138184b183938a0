// Makes one pass over the queue, and keeps what explanations need.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "server/core/scheduling/backfill.h"
#include "server/core/scheduling/fair_share.h"
#include "server/core/scheduling/packing.h"
#include "server/core/scheduling/plan.h"
#include "server/core/scheduling/preemption.h"
#include "server/core/scheduling/queue_order.h"
#include "server/core/scheduling/quota.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// The pool and the shares as a pass sees and changes them. It borrows nothing from the pass's
// input, so that it can outlive it. It is not thread-safe, because `ReachOf` remembers its answers.
class PassState {
 public:
  PassState(const PassInput& input, const PolicyOptions& pass_options);
  PassState(const PassState&) = delete;
  PassState& operator=(const PassState&) = delete;

  const Reach& ReachOf(const QueuedJob& job) const;
  // Returns the gang of a job whose owner may have `room` more devices.
  GangDemand GangOf(const Demand& demand, int32_t room) const;
  // Returns the size of the largest such gang of the job that is free now, or 0.
  int32_t LargestFor(const QueuedJob& job, const GangDemand& gang) const;
  // Returns the most that a rank of the job holds of a host.
  HostAmount NeedOf(const QueuedJob& job) const {
    return slots.MostOn(ReachOf(job).ever, job.demand.resources);
  }
  // Returns how many more devices the job's owner may have. Devices that are claimed for the job
  // count as room.
  int32_t RoomOf(const QueuedJob& job) const;
  bool IsOverdue(const QueuedJob& job) const {
    return job.waiting_since_us < rules.overdue_before_us;
  }
  // Picks slots that are free for the job now. Returns none if its gang does not fit.
  std::vector<int32_t> PickFor(const QueuedJob& job, const GangDemand& gang) const;
  // Picks the slots that the job gets as a guest (see RunningJob) if PickFor returned none. Returns
  // none if it may not be a guest, or if the slots would be needed too soon.
  std::vector<int32_t> PickForGuest(const QueuedJob& job, const GangDemand& gang) const;
  // Returns the uptime by which a guest has left if it is asked to leave now.
  int64_t GuestGoneBy() const { return now.uptime_us + checkpoint_wait_us; }

  const PolicyOptions options;
  const Now now;
  const int64_t min_runtime_us;
  const int64_t checkpoint_wait_us;
  const OrderRules rules;
  const std::map<std::string, QuotaRecord> quota_records;
  Slots slots;
  HeldSlots held;
  std::set<JobId> stopping;
  Quotas quotas;
  FairShare share;
  Backfill backfill;
  bool is_complete = true;  // true if the pass has left no job for the next one

 private:
  using Filter = std::tuple<std::string, int64_t, int64_t, int64_t,
                            std::map<std::string, std::string>, bool, std::string, std::string,
                            std::set<std::string>, std::string, std::string, HostAmount, bool>;
  void ChargeRunning(const RunningJob& job);
  void ChargeClaims(const PassInput& input);

  mutable std::map<Filter, Reach, std::less<>> reaches_;
};

// Runs a pass. The caller adds the record to the plan.
Plan RunPass(const PassInput& input, PassState& state);

}  // namespace trainyard::core
