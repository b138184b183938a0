// Steps the state machines of jobs, attempts and workers, and does what follows from each
// transition: events, times, indices, and the inputs that one machine has for another. Every change
// of the state of a record goes through here.
#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// Returns the checkpoint from which the job's next attempt starts: the newest whole one of its own,
// else the one that it was created from, even if that is damaged, else nothing. A job that was to
// start from another job's checkpoint must never start without it.
std::optional<CheckpointRef> ResumePoint(const Snapshot& snapshot, const JobRecord& job);

// Returns the name of a worker as an actor: "worker:lab-1".
std::string ActorOf(absl::string_view worker);

// Steps machines. It borrows the state for one input or one timer, and costs nothing to make.
// `actor` is who asks.
class Stepper {
 public:
  Stepper(YardState& state, Now now) : yard_(state), now_(now) {}

  // Implemented in stepper_jobs.cc.

  // Steps the job. Returns JOB_NOT_FOUND, or JOB_STATE_CONFLICT if the job's state refuses the
  // input. An input that is ignored gives OK.
  absl::Status StepJob(JobId id, const job_fsm::Input& input, absl::string_view actor,
                       const std::string& message);
  // Does the bookkeeping when the job has begun to wait.
  void EnterQueue(JobId id);
  // Returns the time until a delayed start must be looked at again. It is 0 or less if the delay is
  // over.
  int64_t StartDelay(const Submission& submission) const;
  // Sees to it that no new job gets the number of this one or a lower one.
  void SkipJobNumbers(JobId last);
  void AddCheckpoint(CheckpointRecord checkpoint, const std::string& actor);
  // Notes what is wrong with the checkpoint, or, if `damage` is empty, that it is whole again.
  void SetDamage(const CheckpointRef& id, const std::string& damage);
  // Notes that `checkpoint` is stored from now on (sign 1), or no longer (-1).
  void CountStored(const CheckpointRecord& checkpoint, int64_t sign);

  // Implemented in stepper_attempts.cc.

  void StepAttempt(AttemptId id, const attempt_fsm::Input& input, absl::string_view actor);
  // Moves the time that the attempt has run into its job's record. Run time is counted by the
  // monotonic clock and stored with each report of progress, so a server that dies forgets less
  // than a sync interval of it.
  void CountRunTime(JobId id, LiveAttempt& live);
  // Returns the part for editing. It must exist.
  AttemptPart& EditPart(AttemptId id, const std::string& worker);
  void LosePart(const std::string& worker, AttemptId id, std::string reason, std::string message);
  // Marks the parts on this worker as lost for the jobs that `is_lost` names.
  void LoseParts(const std::string& worker, absl::string_view why,
                 absl::FunctionRef<bool(JobId)> is_lost);
  // Ends the attempt once nothing more of it can arrive. While only streams are missing, they have
  // a deadline.
  void CheckGone(AttemptId id, absl::string_view actor);
  void TouchWorkersOf(const AttemptRecord& attempt);

  // Implemented in stepper_workers.cc.

  void StepWorker(const std::string& name, const worker_fsm::Input& input, absl::string_view actor,
                  std::string message);
  // Steps the scheduling of a worker, or returns WORKER_NOT_FOUND. The stops of a drain are left to
  // Drain.
  absl::Status StepScheduling(const std::string& name, const worker_fsm::SchedulingInput& input,
                              absl::string_view actor, std::string message);
  // Carry out the inputs of the same names.
  absl::Status Drain(const DrainWorker& in);
  // Empties a worker whose daemon is to end. Its session says so, and nothing is stored: the next
  // session of the worker gets ranks again.
  void Leave(const std::string& worker, int64_t within_us);
  absl::Status Quarantine(const QuarantineDevice& in);
  // Notes that a part has failed on the worker before anything else of its attempt did. Only the
  // first failure of an attempt says something about its worker: a hardware failure sets the rank's
  // device aside, and different jobs that fail in a row drain the worker.
  void NoteFailure(const std::string& worker, AttemptId id, const Outcome& outcome);

  // Implemented in stepper_stops.cc.

  void AskForCheckpoint(AttemptId id);
  // Asks for a checkpoint and lets the stop wait for it. An attempt that does not run yet has
  // nothing to save, so it stops at once. An attempt that already has a pending stop keeps it, but
  // a stop without a claimant replaces one with a claimant, because that one might be withdrawn.
  void RequestStop(AttemptId id, PendingStop stop, absl::string_view actor);
  // Carries out the pending stop of the attempt.
  void FireStop(AttemptId id, absl::string_view actor);
  void DrainAttempts(const std::string& worker, int64_t within_us, absl::string_view actor);
  void Claim(JobId job, const std::vector<DeviceKey>& devices);
  void DropClaims(JobId job);
  // Drops the claims of a claimant that no longer needs what was to be freed for it, and lets
  // victims that have not been stopped yet continue. Returns true if it had claims.
  bool Withdraw(JobId claimant);
  // Withdraws claims whose job could not be placed although no more devices will come, because they
  // would keep devices idle. Returns true if there was one.
  bool WithdrawIdleClaims();

 private:
  void EnterJobState(JobId id, const JobState& before);
  void EndJob(JobId id, const JobState& before);
  void LeaveQueue(JobId id);
  void DropOrphans(JobId job);
  void CleanCheckpoints(JobId job, absl::string_view actor);
  void EndAttempt(AttemptId id, absl::string_view actor);
  void AddEvent(std::string resource, std::string type, absl::string_view actor,
                std::string message);

  YardState& yard_;
  const Now now_;
};

}  // namespace trainyard::core
