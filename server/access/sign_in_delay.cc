// Doubles the delay with each failure that counts.
#include "server/access/sign_in_delay.h"

#include <algorithm>

namespace trainyard::access {

SignInDelay::Addresses::iterator SignInDelay::Remember(absl::string_view name, absl::Duration now) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    if (now - found->second->last >= kForgetAfter) found->second->failures = 0;
    addresses_.splice(addresses_.begin(), addresses_, found->second);
    return found->second;
  }
  if (addresses_.size() == kAddressesMax) {
    by_name_.erase(addresses_.back().name);
    addresses_.pop_back();
  }
  addresses_.push_front({std::string(name), 0, now, now});
  by_name_[name] = addresses_.begin();
  return addresses_.begin();
}

absl::Duration SignInDelay::Failed(absl::string_view address, absl::Duration now) {
  const MutexLock lock(&mutex_);
  const auto entry = Remember(address, now);
  if (now < entry->until) return entry->until - now;
  entry->last = now;
  ++entry->failures;
  if (entry->failures <= kFreeFailures) return absl::ZeroDuration();
  // Seven doublings reach the longest delay, so the shift stays small.
  const int doublings = std::min(entry->failures - kFreeFailures - 1, 7);
  entry->until = now + std::min(kFirstDelay * (1 << doublings), kDelayMax);
  return absl::ZeroDuration();
}

size_t SignInDelay::size() const {
  const MutexLock lock(&mutex_);
  return addresses_.size();
}

}  // namespace trainyard::access
