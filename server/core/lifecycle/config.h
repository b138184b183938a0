// Collects every time limit of the core in one place. Tests choose other values.
#pragma once

#include <cstdint>

#include "server/core/lifecycle/words.h"

namespace trainyard::core {

struct Config {
  // A worker that has not synced for this long is UNREACHABLE. It has then missed three syncs.
  int64_t lease_us = 15 * kSecond;
  int64_t sync_interval_us = 5 * kSecond;
  // The time between SIGTERM and SIGKILL. A cancelled job needs no checkpoint; the others write
  // one.
  int64_t cancel_grace_us = 10 * kSecond;
  int64_t checkpoint_grace_us = 30 * kSecond;
  // An attempt on an unreachable worker is lost after the sum of the lease, the job's
  // on_disconnect.keep, the time that the supervisor then gives its ranks
  // (supervisor::kDefaultTermGrace), and this margin for clocks that run unequally and for
  // processes that take time to die.
  int64_t lease_grace_us = 10 * kSecond;
  int64_t lost_margin_us = 5 * kSecond;
  // An unreachable worker without attempts is GONE after this long.
  int64_t gone_after_us = 10 * kMinute;
  // The backoff after a failure, which doubles with each failure up to the maximum.
  int64_t backoff_initial_us = 5 * kSecond;
  int64_t backoff_max_us = 5 * kMinute;
  // After the ranks have exited, their last checkpoint, metrics and logs have this long to arrive
  // before the job continues without them.
  int64_t drain_limit_us = 60 * kSecond;

  // For fair share, device time that was used this long ago counts half. A held device counts as
  // this much use in advance, so that one burst of submissions does not take everything.
  int64_t usage_half_life_us = int64_t{7} * 24 * kHour;
  int64_t usage_advance_us = 10 * kMinute;
  // A job that has waited this long goes before fair share, by time of submission, so that nobody
  // starves.
  int64_t overdue_after_us = 24 * kHour;

  // A job is not preempted before it has run for this long, and nobody waits longer than this for
  // the checkpoint that comes before the stop.
  int64_t min_runtime_us = 5 * kMinute;
  int64_t checkpoint_wait_us = 60 * kSecond;
  // Elastic jobs grow when devices have been free for this long, and not sooner than this after a
  // change of their size.
  int64_t grow_after_us = 2 * kMinute;

  // A delayed start follows the wall clock, which somebody may correct, so it is checked again this
  // often.
  int64_t wall_recheck_us = 10 * kMinute;

  // A pass is made at least this often while something runs, because some decisions change with
  // time alone.
  int64_t replan_us = 10 * kSecond;
  // Many submissions must not cause as many passes. If this many jobs wait already, a new job waits
  // for this long so that one pass serves several of them.
  int64_t long_queue = 1000;
  int64_t pass_interval_us = 50 * kMillisecond;

  // If this many different jobs fail on a worker in a row, the worker is drained.
  int32_t worker_failures_max = 3;

  // The number of waiting jobs, counted by kind (see job_queue.h), that one pass looks at before it
  // leaves the rest for the next.
  int32_t pass_kinds_max = 1000;
};

}  // namespace trainyard::core
