// Decides what becomes of a job whose attempt failed. The functions are pure.
//
// Only what happened since an attempt last made progress, which is a checkpoint of its own, counts.
//
//   user_error         the spec or the data is at fault: never retried
//   transient          retried after a backoff, up to max_retries
//   hardware, lost     retried for free; the first time at once, then after a backoff
//   poison             the same failure of rank 0 on two workers: held for a person
//
// An attempt that could not start because the job's own checkpoint is damaged (CHECKPOINT_DAMAGED)
// is retried for free and at once: the next one starts from another checkpoint. One that its worker
// cannot run as its owner (OWNER_REFUSED) is retried for free: the next one runs elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/core/lifecycle/config.h"
#include "server/core/lifecycle/words.h"

namespace trainyard::core {

// An attempt whose rank 0 failed before any other rank.
struct RankZeroFailure {
  std::string worker;
  Failure failure;
};

struct FailureHistory {
  int32_t retries = 0;                     // used so far, out of max_retries
  int32_t max_retries = 0;                 // granted by the spec
  int32_t failures = 0;                    // failed and lost attempts before this one
  std::vector<RankZeroFailure> rank_zero;  // of these attempts, this one included
};

struct RetryVerdict {
  Failure failure;       // what the job shows
  bool give_up = false;  // the job ends here
  bool hold = false;     // the job waits for a person
  bool counts_as_retry = false;
  int64_t delay_us = 0;  // before the job may be placed again
};

RetryVerdict JudgeFailure(const Config& config, const Failure& failure,
                          const FailureHistory& history);

// Returns initial * 2^failures_before, but no more than the maximum. It has no jitter, because
// jitter serves to spread many clients over time, and here one job returns to one server.
int64_t BackoffDelay(const Config& config, int32_t failures_before);

}  // namespace trainyard::core
