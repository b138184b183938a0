// Compares each look with the one before.
#include "worker/program/idle_watch.h"

#include <algorithm>

namespace trainyard::program {

absl::Duration IdleWatch::interval() const {
  return std::min(limit_ / 10, absl::Seconds(10));
}

bool IdleWatch::Look(const Signs& signs, absl::Duration now) {
  const absl::Duration used = signs.processor_time - signs_.processor_time;
  // The sum becomes smaller when a process ends, which is something, too.
  const bool is_busy =
      !has_signs_ || used < absl::ZeroDuration() || used > (now - looked_at_) * kBusyFraction ||
      signs.written_bytes != signs_.written_bytes || signs.visit_us != signs_.visit_us;
  has_signs_ = true;
  signs_ = signs;
  looked_at_ = now;
  if (is_busy) busy_at_ = now;
  return idle() >= limit_;
}

}  // namespace trainyard::program
