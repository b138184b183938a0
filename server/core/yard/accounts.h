// Adds up what everybody has used, on which fair share is based, and counts what quotas limit, by
// subject ("user:anna", "project:vision"). It reads no wall clock: use decays with the time that
// the server has run, and budgets fill with uptime.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/core/lifecycle/config.h"
#include "server/core/lifecycle/records.h"
#include "server/core/yard/ledger.h"
#include "server/core/yard/live_attempts.h"

namespace trainyard::core {

// The accounts of a yard. The class is not thread-safe.
class Accounts {
 public:
  // `pool_time_us` is that of the snapshot with which the server starts.
  Accounts(const Config& config, int64_t pool_time_us, Now now);

  // Returns QUOTA_EXCEEDED, with the subject, the limit and what is used of it, if a submission is
  // beyond a limit.
  absl::Status CheckSubmission(const std::map<std::string, QuotaRecord>& quotas,
                               const Submission& submission, Now now) const;
  // Returns QUOTA_EXCEEDED if jobs of this submission may not store `bytes` more, or have stored
  // all that they may.
  absl::Status CheckStored(const std::map<std::string, QuotaRecord>& quotas,
                           const Submission& submission, int64_t bytes) const;
  // Returns QUOTA_EXCEEDED if the submission comes too soon after others.
  absl::Status CheckRate(const std::map<std::string, QuotaRecord>& quotas,
                         const Submission& submission, Now now) const;
  // Counts a submission that was accepted against its rate; other limits count what exists.
  void ChargeSubmission(const std::map<std::string, QuotaRecord>& quotas,
                        const Submission& submission, Now now);
  // Notes that `change` more jobs of this submission wait, or fewer if it is negative.
  void CountQueued(const Submission& submission, int64_t change);
  // Notes that `bytes` more of checkpoints are stored for jobs of this submission, or fewer if it
  // is negative.
  void CountStored(const Submission& submission, int64_t bytes);

  // Notes what the logs and metrics of a job of this submission take now.
  void NoteStreams(const Submission& submission, JobId job, StreamBytes bytes);
  // Returns what was noted last, or null if nothing was noted since the start.
  const StreamBytes* FindStreams(JobId job) const;
  // Forgets a job that is deleted.
  void ForgetStreams(const Submission& submission, JobId job);
  // Returns warnings for the owners of a submission who have used most of what they may store.
  std::vector<std::string> WarningsOf(const std::map<std::string, QuotaRecord>& quotas,
                                      const Submission& submission) const;
  // Returns the bytes that count against the quota of a subject.
  int64_t StoredBy(const std::string& subject) const;

  // Charges what the attempt has held since it was last charged, to its job and to its owner.
  static void Charge(Ledger& ledger, AttemptId attempt, LiveAttempt& live, Now now);
  // Charges all attempts and lets use decay. It does so only now and then, because the result is
  // stored.
  void Keep(Ledger& ledger, LiveAttempts& live, Now now);
  // Returns the use of everybody, including what has not been charged yet.
  static std::map<UsageKey, UsageRecord> Usage(const Ledger& ledger, const LiveAttempts& live,
                                               Now now);

 private:
  // Submissions are limited by a budget of one minute, which fills with time.
  struct SubmitBudget {
    int64_t used_us = 0;  // of the minute
    int64_t as_of_us = 0;
  };

  // Returns how much of its budget the subject has used, as of now.
  int64_t UsedBudget(const std::string& subject, Now now) const;

  int64_t decay_step_us_;    // of pool time
  int64_t kept_us_;          // uptime of the last Keep
  int64_t decayed_pool_us_;  // pool time of the last decay
  std::map<std::string, int64_t> queued_by_;
  std::map<std::string, int64_t> stored_by_;
  std::map<JobId, StreamBytes> streams_;
  std::map<std::string, SubmitBudget> submits_by_;
};

}  // namespace trainyard::core
