// Every time limit of the core in one place. Tests choose others.
#pragma once

#include <cstdint>

#include "server/core/lifecycle/words.h"

namespace trainyard::core {

struct Config {
  // A worker that has not synced for so long is UNREACHABLE. Three missed syncs.
  int64_t lease_us = 15 * kSecond;
  int64_t sync_interval_us = 5 * kSecond;
  // Between SIGTERM and SIGKILL. A cancelled job needs no checkpoint; the others write one.
  int64_t cancel_grace_us = 10 * kSecond;
  int64_t checkpoint_grace_us = 30 * kSecond;
  // An attempt on an unreachable worker is lost after the lease, the job's on_disconnect.keep, what
  // the supervisor then gives its ranks (supervisor::kDefaultTermGrace), and a margin for clocks
  // that run unequally and processes that take their time to die.
  int64_t lease_grace_us = 10 * kSecond;
  int64_t lost_margin_us = 5 * kSecond;
  // An unreachable worker without attempts is GONE after so long.
  int64_t gone_after_us = 10 * kMinute;
  // Backoff after a failure: doubles with each, up to the maximum.
  int64_t backoff_initial_us = 5 * kSecond;
  int64_t backoff_max_us = 5 * kMinute;
  // After the ranks have exited, their last checkpoint, metrics and logs get so long to arrive
  // before the job goes on without them.
  int64_t drain_limit_us = 60 * kSecond;

  // Fair share: what was used so long ago counts half. A held device counts as this much use in
  // advance, so that one burst of submissions does not take everything.
  int64_t usage_half_life_us = 7 * 24 * kHour;
  int64_t usage_advance_us = 10 * kMinute;
  // A job that has waited so long goes before fair share, by time of submission: nobody starves.
  int64_t overdue_after_us = 24 * kHour;

  // Preemption: nobody is preempted who has run for less, and nobody waits longer than this for
  // the checkpoint that comes before the stop.
  int64_t min_runtime_us = 5 * kMinute;
  int64_t checkpoint_wait_us = 60 * kSecond;
  // Elastic jobs grow when devices have been free for so long, and not sooner after a change.
  int64_t grow_after_us = 2 * kMinute;

  // A delayed start goes by the wall clock, which somebody may set right: it is looked at again so
  // often.
  int64_t wall_recheck_us = 10 * kMinute;

  // A pass is made at least this often while something runs: some decisions change with time alone.
  int64_t replan_us = 10 * kSecond;
  // A flood of submissions makes no flood of passes: where so many jobs wait already, new ones wait
  // for each other so long.
  int64_t long_queue = 1000;
  int64_t pass_interval_us = 50 * kMillisecond;

  // So many different jobs that fail on a worker in a row drain it.
  int32_t worker_failures_max = 3;

  // Waiting jobs that one pass looks at, by kind of demand (see job_queue.h), before it leaves the
  // rest for the next.
  int32_t pass_kinds_max = 1000;
};

}  // namespace trainyard::core
