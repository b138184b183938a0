// The inside of the yard. Its parts, each a file:
//   yard.cc           the surface, verbs on jobs and workers, reading
//   yard_steps.cc     stepping the machines, and what follows from a transition
//   yard_sync.cc      registration and reports of workers
//   yard_settle.cc    timers, the loop turn's end
//   yard_plan.cc      placement
//   yard_stops.cc     stops that wait for a checkpoint: preemption, drain, growth
//   yard_share.cc     quotas, usage, reservations, devices set aside
//   yard_desired.cc   what workers should have; who holds which device
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/core/lifecycle/retry_policy.h"
#include "server/core/scheduling/job_queue.h"
#include "server/core/scheduling/policy.h"
#include "server/core/yard/deadlines.h"
#include "server/core/yard/ledger.h"
#include "server/core/yard/yard.h"

namespace trainyard::core {

class Yard::Impl {
 public:
  Impl(const Config& config, Snapshot snapshot, Now now, std::unique_ptr<const Policy> policy);

  absl::StatusOr<Reply> Apply(const SubmitJob& in, Now now);
  absl::StatusOr<Reply> Apply(const CancelJob& in, Now now);
  absl::StatusOr<Reply> Apply(const SuspendJob& in, Now now);
  absl::StatusOr<Reply> Apply(const ResumeJob& in, Now now);
  absl::StatusOr<Reply> Apply(const RegisterWorker& in, Now now);
  absl::StatusOr<Reply> Apply(const SyncReport& in, Now now);
  absl::StatusOr<Reply> Apply(const CommitCheckpoint& in, Now now);
  absl::StatusOr<Reply> Apply(const CordonWorker& in, Now now);
  absl::StatusOr<Reply> Apply(const UncordonWorker& in, Now now);
  absl::StatusOr<Reply> Apply(const DrainWorker& in, Now now);
  absl::StatusOr<Reply> Apply(const DeclareWorkerLost& in, Now now);
  absl::StatusOr<Reply> Apply(const QuarantineDevice& in, Now now);
  absl::StatusOr<Reply> Apply(const ReleaseDevice& in, Now now);
  absl::StatusOr<Reply> Apply(const SetQuota& in, Now now);
  absl::StatusOr<Reply> Apply(const DeleteQuota& in, Now now);
  absl::StatusOr<Reply> Apply(const CreateReservation& in, Now now);
  absl::StatusOr<Reply> Apply(const DeleteReservation& in, Now now);
  Turn Settle(Now now);
  std::optional<int64_t> NextDeadline() const;

  const Config& config() const { return config_; }
  const Snapshot& snapshot() const { return ledger_.snapshot(); }
  std::vector<std::string> QueueReasons(JobId job) const;
  std::vector<JobId> QueueFront() const;
  Explanation Explain(JobId job, Now now) const;
  Explanation Preview(const Submission& submission, Now now) const;
  std::map<UsageKey, UsageRecord> Usage(Now now) const;
  int64_t LastSeen(const std::string& worker) const;
  std::map<std::string, DeviceUsage> UsageOn(const std::string& worker) const;
  std::vector<DesiredAttempt> DesiredFor(const std::string& worker) const;
  int64_t DesiredRevision(const std::string& worker) const;
  std::map<std::string, AttemptId> HoldersOn(const std::string& worker) const;
  absl::StatusOr<std::string> WorkerOfSession(absl::string_view session) const;
  absl::Status CheckStream(absl::string_view session, AttemptId attempt, int64_t token) const;
  absl::Status CheckCheckpointWriter(absl::string_view session, AttemptId attempt,
                                     int64_t token) const;

 private:
  // What is known of a worker only while the server lives. Deadlines are uptimes.
  struct Observed {
    int64_t fencing_token = 0;
    ObservedState state = ObservedState::kStarting;

    friend bool operator==(const Observed&, const Observed&) = default;
  };
  struct Contact {
    std::string session;  // empty: none since the server started, or it has ended
    bool synced = false;  // the session has reported what runs
    int64_t sequence = 0;
    int64_t last_seen_us = 0;                // wall
    int64_t lease_deadline_us = 0;           // while ACTIVE
    int64_t unreachable_since_us = 0;        // while UNREACHABLE
    std::map<AttemptId, Observed> observed;  // of the last report
    std::vector<DesiredAttempt> desired;     // as of desired_revision
    int64_t desired_revision = 0;
    std::map<std::string, DeviceUsage> usage;  // of the last report, by name of the device
  };
  // The same of an attempt that has not ended.
  // A stop that waits for a checkpoint first.
  struct PendingStop {
    StopReason reason = StopReason::kPreempt;
    std::string detail;
    JobId claimant;           // for whom; 0: for nobody
    int64_t deadline_us = 0;  // stops then, checkpoint or not
  };
  struct LiveAttempt {
    std::optional<int64_t> drain_deadline_us;  // all ranks are gone, streams may be on their way
    std::optional<int64_t> run_since_us;       // RUNNING, not yet in JobRecord::run_time_us
    int64_t started_us = 0;                    // RUNNING since
    int64_t charged_us = 0;                    // its use of devices is accounted for until then
    int64_t safe_since_us = 0;                 // its last committed checkpoint, else its placement
    int64_t end_by_speed_us = 0;               // expected, by the rate of its steps; 0: unknown
    int64_t checkpoint_request = 0;
    JobId guest_of;          // who kept its devices; 0: nobody
    bool is_warned = false;  // that its time limit is near
    std::optional<PendingStop> stop;
    std::map<std::string, std::map<std::string, std::string>> rendezvous;  // by worker
  };

  // yard_steps.cc
  absl::Status StepJob(JobId id, const job_fsm::Input& input, absl::string_view actor,
                       std::string message, Now now);
  void EnterJobState(JobId id, const JobState& before, Now now);
  void StepAttempt(AttemptId id, const attempt_fsm::Input& input, absl::string_view actor, Now now);
  void EndAttempt(AttemptId id, absl::string_view actor, Now now);
  job_fsm::Input EndForJob(const AttemptRecord& attempt, Now now) const;
  FailureHistory HistoryOf(const JobRecord& job) const;
  void StepWorker(const std::string& name, const worker_fsm::Input& input, absl::string_view actor,
                  std::string message, Now now);
  absl::Status StepScheduling(const std::string& name, const worker_fsm::SchedulingInput& input,
                              absl::string_view actor, std::string message, Now now);
  void CountRunTime(JobId id, LiveAttempt& live, Now now);
  void CleanCheckpoints(JobId job, absl::string_view actor, Now now);
  std::optional<CheckpointRef> ResumePoint(const JobRecord& job) const;
  void TouchWorkersOf(const AttemptRecord& attempt);

  // yard_sync.cc
  void TakeHealth(const std::string& worker, const std::vector<DeviceRecord>& devices, Now now);
  void ReportPart(const std::string& worker, AttemptId id, const ObservedAttempt* seen,
                  int64_t desired_revision, Now now);
  void PartNotListed(const std::string& worker, AttemptId id, int64_t desired_revision, Now now);
  void PartExited(const std::string& worker, AttemptId id, const ObservedAttempt& seen, Now now);
  void TakeProgress(const std::string& worker, AttemptId id, const ObservedAttempt& seen, Now now);
  AttemptPart& EditPart(AttemptId id, const std::string& worker);
  void LosePart(const std::string& worker, AttemptId id, std::string reason, std::string message,
                Now now);
  void CheckGone(AttemptId id, absl::string_view actor, Now now);

  // yard_settle.cc
  void RefreshTimers();
  void FireTimers(Now now);
  void FireWorkerTimers(const std::string& name, Now now);
  void LoseParts(const std::string& name, absl::string_view why, Now now,
                 absl::FunctionRef<bool(JobId)> is_lost);
  void FireAttemptTimers(AttemptId id, Now now);
  std::optional<int64_t> TimeLimitDeadline(AttemptId id, const LiveAttempt& live) const;
  std::optional<int64_t> WarningDeadline(AttemptId id, const LiveAttempt& live) const;
  std::optional<int64_t> WorkerDeadline(const std::string& name) const;
  std::optional<int64_t> AttemptDeadline(AttemptId id) const;
  std::optional<int64_t> NextPass() const;
  int64_t PassForNewJobs() const;
  int64_t LostDeadline(const Contact& contact, JobId job) const;
  bool HasHoldingParts(const std::string& worker) const;
  void RefreshDesired();

  // yard_plan.cc
  PassInput MakeInput(Now now) const;
  std::string WhyNoRanks(const WorkerRecord& worker) const;
  PoolWorker MakePoolWorker(const WorkerRecord& record) const;
  void RefreshPool();
  QueuedJob MakeQueued(const Submission& submission) const;
  QueuedJob MakeQueued(JobId id) const;
  std::vector<std::string> HoldsOf(const JobRecord& job) const;
  void AddDependencyHold(const Dependency& dependency, std::vector<std::string>& holds) const;
  void RefreshQueue();
  RunningJob MakeRunning(const AttemptRecord& attempt, Now now) const;
  void RefreshRunning(Now now);
  std::optional<int64_t> ExpectedEnd(const JobRecord& job, const LiveAttempt& live, Now now) const;
  bool MakePlan(Now now);
  void StartAttempt(const GangPlacement& placement, Now now);

  // yard_stops.cc
  void RequestStop(AttemptId id, PendingStop stop, absl::string_view actor, Now now);
  void FireStop(AttemptId id, absl::string_view actor, Now now);
  void AskForCheckpoint(AttemptId id);
  void Nominate(const Preemption& preemption, Now now);
  void StartGrowth(const Growth& growth, Now now);
  void Claim(JobId job, const std::vector<DeviceKey>& devices);
  void DropClaims(JobId job);
  void Withdraw(JobId claimant, Now now);
  bool WithdrawIdleClaims(Now now);
  void DrainAttempts(const std::string& worker, int64_t within_us, absl::string_view actor,
                     Now now);

  // yard_share.cc
  absl::Status CheckQuotas(const Submission& submission, Now now);
  const QuotaRecord* FindQuota(absl::string_view kind, const std::string& name) const;
  std::set<std::string> ReservationsOf(const Submission& submission) const;
  void RefreshReservations(Now now);
  void Charge(AttemptId id, LiveAttempt& live, Now now);
  void KeepAccounts(Now now);
  int64_t DecayStep() const;
  void NoteFailure(const std::string& worker, AttemptId id, const Outcome& outcome, Now now);

  // yard_desired.cc
  DesiredAttempt DesiredPart(const AttemptRecord& attempt, const LiveAttempt& live,
                             const std::string& worker) const;
  bool RunsUnknown(const Contact& contact) const;

  const Contact* FindSession(absl::string_view session, std::string* worker) const;

  Config config_;
  Ledger ledger_;
  std::unique_ptr<const Policy> policy_;

  void Touch(const std::string& worker) {
    touched_workers_.insert(worker);
    stale_workers_.insert(worker);
  }
  void EnterQueue(JobId id, Now now);
  void LeaveQueue(JobId id);
  int64_t StartDelay(const Submission& submission, Now now) const;
  void CountQueued(const Submission& submission, int64_t change);
  void CountStored(const CheckpointRecord& checkpoint, int64_t sign);

  // Derived from the records: what has not ended.
  std::map<AttemptId, LiveAttempt> live_;
  std::map<std::string, std::set<AttemptId>> live_on_;  // by worker
  std::map<CheckpointRef, int32_t> parents_;  // how many jobs that have not ended start there

  std::map<std::string, Contact> contacts_;                   // every worker
  std::map<std::string, std::string, std::less<>> sessions_;  // to worker
  // Queued jobs that are not to be placed before an uptime: a backoff, a delayed start.
  Deadlines<JobId> wakes_;
  Deadlines<std::string> worker_timers_;
  Deadlines<AttemptId> attempt_timers_;
  std::map<JobId, std::set<JobId>> dependents_;  // queued jobs that wait for the end of another
  std::map<JobId, std::vector<std::string>> reasons_;
  std::vector<JobId> front_;  // of the queue, by the last pass
  int64_t desired_counter_ = 0;

  // What a pass looks at, and what has changed in it since.
  Pool pool_;
  JobQueue queue_;
  std::map<JobId, RunningJob> running_;
  std::set<std::string> stale_workers_;
  std::set<JobId> stale_jobs_;
  std::shared_ptr<const PassRecord> record_;
  Now planned_at_;
  std::map<DeviceKey, JobId> claims_;          // devices kept free
  std::map<DeviceKey, std::string> reserved_;  // by reservations in force
  std::optional<int64_t> reservation_deadline_us_;

  // For quotas: jobs that wait, and bytes stored, by subject; submissions by a bucket that fills
  // with time.
  struct SubmitBudget {
    int64_t used_us = 0;  // of a minute
    int64_t as_of_us = 0;
  };
  std::map<std::string, int64_t> queued_by_;
  std::map<std::string, int64_t> stored_by_;
  std::map<std::string, SubmitBudget> submits_by_;
  int64_t accounts_us_ = 0;      // uptime of the last KeepAccounts
  int64_t decayed_pool_us_ = 0;  // pool time of the last decay

  bool has_new_jobs_ = false;  // submitted since the last pass

  // Of the present loop turn.
  bool plan_again_ = true;
  std::set<std::string> touched_workers_;
  Turn turn_;
};

// The part of `attempt` on `worker`; null where it has none.
const AttemptPart* FindPart(const AttemptRecord& attempt, absl::string_view worker);
// Whether the part holds its devices.
bool HoldsDevices(PartState state);

}  // namespace trainyard::core
