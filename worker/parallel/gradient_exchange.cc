// Computes what the times of a step's communication say.
#include "worker/parallel/gradient_exchange.h"

#include <algorithm>

namespace trainyard::parallel {

double CommStats::HiddenFraction() const {
  if (total <= absl::ZeroDuration()) return 1;
  return std::clamp(1 - absl::FDivDuration(exposed, total), 0.0, 1.0);
}

}  // namespace trainyard::parallel
