// Lets allocations live, and draws what happens to them.
#include "tests/unit/server/provision/model_cluster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/provision/core/provider.h"

namespace trainyard::provision {
namespace {

constexpr int64_t kNever = int64_t{1} << 60;
// Ended allocations are listed for so long, as Slurm's MinJobAge has it.
constexpr int64_t kEndedListedUs = 5 * kMinuteUs;

}  // namespace

SubmitResult ModelCluster::Submit(const std::string& name, int64_t now_us) {
  submissions_[name] += 1;
  SubmitResult result{name, SubmitResult::Kind::kUnknown, "", "no reply"};
  if (refuses) return {name, SubmitResult::Kind::kRefused, "", "invalid account"};
  const int64_t fault = has_faults || is_deaf ? dice_.Between(0, 99) : 99;
  if (is_deaf && fault < 50) return result;
  if (fault < 5) return result;  // the request is lost
  if (fault < 8) return {name, SubmitResult::Kind::kRefused, "", "too many jobs"};
  Allocation allocation;
  allocation.id = absl::StrCat(next_id_++);
  allocation.name = name;
  // A request that nobody waits for any more may wait in the controller's own queue.
  allocation.appear_us =
      fault < 16 || is_deaf ? now_us + dice_.Between(0, 150) * kSecondUs : now_us;
  Plan(allocation, allocation.appear_us);
  allocations_.push_back(allocation);
  if (fault < 24 || is_deaf) return result;  // only the reply is lost
  return {name, SubmitResult::Kind::kAccepted, allocation.id, ""};
}

void ModelCluster::Plan(Allocation& allocation, int64_t now_us) {
  allocation.start_us = now_us + dice_.Between(5, 300) * kSecondUs;
  int64_t connect_s = dice_.Between(5, 120);
  if (has_faults) {
    if (dice_.Chance(10)) allocation.start_us = now_us + dice_.Between(5, 120) * kMinuteUs;
    if (dice_.Chance(5)) allocation.start_us = kNever;
    if (dice_.Chance(5)) connect_s = dice_.Between(500, 1500);
    if (dice_.Chance(5)) connect_s = kNever / kSecondUs / 2;
  }
  if (starts_badly) connect_s = kNever / kSecondUs / 2;
  allocation.connect_us = connect_s * kSecondUs;  // after the start
}

void ModelCluster::Cancel(const std::string& id, int64_t now_us) {
  if (is_deaf || (has_faults && dice_.Chance(10))) return;
  for (Allocation& allocation : allocations_) {
    if (allocation.id != id || !IsAlive(allocation, now_us)) continue;
    allocation.end = ForeignState::kCancelled;
    const int64_t end_us = now_us + dice_.Between(0, 40) * kSecondUs;
    allocation.end_us = allocation.end_us == 0 ? end_us : std::min(allocation.end_us, end_us);
  }
}

Listing ModelCluster::List(int64_t now_us, int64_t& delay_us) {
  Listing listing;
  listing.begin_us = now_us;
  delay_us = has_faults && dice_.Chance(20) ? dice_.Between(5, 100) * kSecondUs : 0;
  if (is_deaf || (has_faults && dice_.Chance(8))) {
    listing.failure = "the controller does not answer";
    return listing;
  }
  for (const Allocation& allocation : allocations_) {
    if (allocation.appear_us > now_us) continue;
    ListedPilot listed;
    listed.name = allocation.name;
    listed.foreign_id = allocation.id;
    listed.state = allocation.state;
    listing.pilots.push_back(listed);
  }
  return listing;
}

void ModelCluster::Trouble(Allocation& allocation, int64_t now_us) {
  // A turn is 5 seconds, so this is once in some hours.
  const int64_t fault = dice_.Between(0, 9999);
  if (fault < 4) {
    allocation.end_us = now_us;
    allocation.end = ForeignState::kCancelled;
  } else if (fault < 8) {
    allocation.end_us = now_us;
    allocation.end = ForeignState::kFailed;
  } else if (fault < 14) {
    allocation.silent_until_us = now_us + dice_.Between(10, 1200) * kSecondUs;
  }
}

void ModelCluster::Run(int64_t now_us) {
  allocations_.erase(std::remove_if(allocations_.begin(), allocations_.end(),
                                    [&](const Allocation& allocation) {
                                      return HasEnded(allocation.state) &&
                                             now_us - allocation.end_us > kEndedListedUs;
                                    }),
                     allocations_.end());
  for (Allocation& allocation : allocations_) {
    if (!IsAlive(allocation, now_us)) continue;
    if (allocation.state == ForeignState::kWaiting && allocation.start_us <= now_us) {
      allocation.state = ForeignState::kActive;
      allocation.connect_us += now_us;
    }
    if (has_faults) Trouble(allocation, now_us);
    if (allocation.state == ForeignState::kActive &&
        now_us - allocation.start_us >= time_limit_us_) {
      allocation.end_us = now_us;
      allocation.end = ForeignState::kTimedOut;
    }
    if (allocation.end_us != 0 && allocation.end_us <= now_us) {
      allocation.state = allocation.end;
      allocation.job = -1;
    }
  }
}

void ModelCluster::Heal(int64_t now_us) {
  refuses = starts_badly = is_deaf = has_faults = false;
  for (Allocation& allocation : allocations_) {
    if (HasEnded(allocation.state)) continue;
    allocation.start_us = std::min(allocation.start_us, now_us + kMinuteUs);
    allocation.silent_until_us = 0;
  }
}

}  // namespace trainyard::provision
