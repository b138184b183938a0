// Exponential backoff with full jitter, bounded.
#pragma once

#include "absl/time/time.h"
#include "common/base/env.h"

namespace trainyard {

// Not thread-safe. Borrows `rng`.
class Backoff {
 public:
  Backoff(absl::Duration initial, absl::Duration max, Rng& rng)
      : initial_(initial), max_(max), next_(initial), rng_(rng) {}

  // Uniform in [half of d, d], where d doubles with every call up to the maximum.
  absl::Duration Next();
  void Reset() { next_ = initial_; }

 private:
  const absl::Duration initial_;
  const absl::Duration max_;
  absl::Duration next_;
  Rng& rng_;
};

}  // namespace trainyard
