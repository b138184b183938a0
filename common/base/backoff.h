// Implements exponential backoff with full jitter and an upper bound.
#pragma once

#include "absl/time/time.h"
#include "common/base/env.h"

namespace trainyard {

// Gives the pauses between retries. The class is not thread-safe, and borrows `rng`.
class Backoff {
 public:
  Backoff(absl::Duration initial, absl::Duration max, Rng& rng)
      : initial_(initial), max_(max), next_(initial), rng_(rng) {}

  // Returns a random duration in [half of d, d], where d doubles with every call up to the maximum.
  absl::Duration Next();
  void Reset() { next_ = initial_; }

 private:
  const absl::Duration initial_;
  const absl::Duration max_;
  absl::Duration next_;
  Rng& rng_;
};

}  // namespace trainyard
