// Every time limit of the core in one place. Tests choose others.
#pragma once

#include <cstdint>

#include "server/core/words.h"

namespace trainyard::core {

struct Config {
  // A worker that has not synced for so long is UNREACHABLE. Three missed syncs.
  int64_t lease_us = 15 * kSecond;
  int64_t sync_interval_us = 5 * kSecond;
  // Between SIGTERM and SIGKILL. A cancelled job needs no checkpoint; the others write one.
  int64_t cancel_grace_us = 10 * kSecond;
  int64_t checkpoint_grace_us = 30 * kSecond;
  // An attempt on an unreachable worker is lost after the job's on_disconnect.keep, the longest
  // grace, and this: slack for messages under way and for clocks that run unequally.
  int64_t lost_margin_us = 30 * kSecond;
  // An unreachable worker without attempts is GONE after so long.
  int64_t gone_after_us = 10 * kMinute;
  // Backoff after a failure: doubles with each, up to the maximum.
  int64_t backoff_initial_us = 5 * kSecond;
  int64_t backoff_max_us = 5 * kMinute;
  // After the ranks have exited, their last checkpoint, metrics and logs get so long to arrive
  // before the job goes on without them.
  int64_t drain_limit_us = 60 * kSecond;
};

}  // namespace trainyard::core
