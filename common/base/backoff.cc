// Computes the pauses between retries. The jitter keeps clients that failed together from coming
// back together. At least half of the ceiling is always waited, so that a retry is never immediate.
#include "common/base/backoff.h"

#include <algorithm>

namespace trainyard {

absl::Duration Backoff::Next() {
  const absl::Duration ceiling = next_;
  next_ = std::min(max_, next_ * 2);
  const double fraction = static_cast<double>(rng_.Next() >> 11) * 0x1p-53;
  return ceiling / 2 + ceiling / 2 * fraction;
}

}  // namespace trainyard
