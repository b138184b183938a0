// Accounts adds up what everybody has used, by which fair share goes, and counts what quotas limit,
// by subject ("user:anna", "project:vision"). Nothing here reads a wall clock: use decays with the
// time that the pool has been looked after, and budgets fill with uptime.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "server/core/lifecycle/config.h"
#include "server/core/lifecycle/records.h"
#include "server/core/yard/ledger.h"
#include "server/core/yard/live_attempts.h"

namespace trainyard::core {

// Not thread-safe.
class Accounts {
 public:
  // `pool_time_us`: of the snapshot that the server starts with.
  Accounts(const Config& config, int64_t pool_time_us, Now now);

  // QUOTA_EXCEEDED, with the subject, the limit and what is used of it. A submission that is not
  // refused is counted by its rate; the rest is counted as it comes to be.
  absl::Status TakeSubmission(const std::map<std::string, QuotaRecord>& quotas,
                              const Submission& submission, Now now);
  // `change` jobs more, or fewer, of this submission wait.
  void CountQueued(const Submission& submission, int64_t change);
  // `bytes` more, or fewer, of checkpoints are stored for jobs of this submission.
  void CountStored(const Submission& submission, int64_t bytes);

  // Charges what the attempt has held since it was charged last, to its job and to its owner.
  static void Charge(Ledger& ledger, AttemptId attempt, LiveAttempt& live, Now now);
  // Charges all attempts, and lets use decay; only now and then, as it is stored.
  void Keep(Ledger& ledger, LiveAttempts& live, Now now);
  // The use of everybody, with what has not been charged yet.
  static std::map<UsageKey, UsageRecord> Usage(const Ledger& ledger, const LiveAttempts& live,
                                               Now now);

 private:
  // Submissions are limited by a budget of one minute, which fills with time.
  struct SubmitBudget {
    int64_t used_us = 0;  // of a minute
    int64_t as_of_us = 0;
  };

  int64_t decay_step_us_;    // of pool time
  int64_t kept_us_;          // uptime of the last Keep
  int64_t decayed_pool_us_;  // pool time of the last decay
  std::map<std::string, int64_t> queued_by_;
  std::map<std::string, int64_t> stored_by_;
  std::map<std::string, SubmitBudget> submits_by_;
};

}  // namespace trainyard::core
