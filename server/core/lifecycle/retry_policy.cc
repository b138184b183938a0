// Judges a failure by its class and by what has failed before.
#include "server/core/lifecycle/retry_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::core {
namespace {

// Two failures are the same if they have the same reason, or, without a reason, the same message.
bool SameFailure(const Failure& a, const Failure& b) {
  if (!a.reason.empty() || !b.reason.empty()) return a.reason == b.reason;
  return a.message == b.message;
}

// Returns another worker on which rank 0 failed in the same way, or an empty text if there is none.
std::string OtherWorker(const FailureHistory& history) {
  if (history.rank_zero.empty()) return "";
  const RankZeroFailure& last = history.rank_zero.back();
  for (const RankZeroFailure& earlier : history.rank_zero) {
    if (earlier.worker != last.worker && SameFailure(earlier.failure, last.failure)) {
      return earlier.worker;
    }
  }
  return "";
}

RetryVerdict GiveUp(Failure failure) {
  RetryVerdict verdict;
  verdict.failure = std::move(failure);
  verdict.give_up = true;
  return verdict;
}

RetryVerdict Hold(Failure failure) {
  RetryVerdict verdict;
  verdict.failure = std::move(failure);
  verdict.hold = true;
  return verdict;
}

RetryVerdict Again(const Failure& failure, bool counts_as_retry, int64_t delay_us) {
  RetryVerdict verdict;
  verdict.failure = failure;
  verdict.counts_as_retry = counts_as_retry;
  verdict.delay_us = delay_us;
  return verdict;
}

}  // namespace

int64_t BackoffDelay(const Config& config, int32_t failures_before) {
  int64_t delay = config.backoff_initial_us;
  for (int32_t i = 0; i < failures_before && delay < config.backoff_max_us; ++i) delay *= 2;
  return std::min(delay, config.backoff_max_us);
}

RetryVerdict JudgeFailure(const Config& config, const Failure& failure,
                          const FailureHistory& history) {
  const auto free_retry = [&] {
    const int64_t delay = history.failures == 0 ? 0 : BackoffDelay(config, history.failures - 1);
    return Again(failure, /*counts_as_retry=*/false, delay);
  };
  if (failure.reason == error::kOwnerRefused) return free_retry();
  switch (failure.failure_class) {
    case FailureClass::kUserError:
      return GiveUp(failure);
    case FailureClass::kPoison:
      return Hold(failure);
    case FailureClass::kLost:
      return free_retry();
    case FailureClass::kHardware:
    case FailureClass::kTransient:
    case FailureClass::kNone:
      break;
  }
  if (failure.reason == error::kCheckpointDamaged) {
    return Again(failure, /*counts_as_retry=*/false, /*delay_us=*/0);
  }
  if (const std::string other = OtherWorker(history); !other.empty()) {
    return Hold({FailureClass::kPoison, failure.reason,
                 absl::StrCat(failure.message, " (rank 0 failed like this on worker ", other,
                              " and on worker ", history.rank_zero.back().worker,
                              ": the job is held; resume it to try again)")});
  }
  if (failure.failure_class == FailureClass::kHardware) return free_retry();
  if (history.retries >= history.max_retries) {
    Failure last = failure;
    if (history.max_retries > 0) {
      absl::StrAppend(&last.message, " (after ", history.retries, " of ", history.max_retries,
                      history.max_retries == 1 ? " retry)" : " retries)");
    }
    return GiveUp(std::move(last));
  }
  return Again(failure, /*counts_as_retry=*/true, BackoffDelay(config, history.retries));
}

}  // namespace trainyard::core
