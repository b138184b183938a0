// Steps the machines of jobs, attempts and workers, and does what follows from each transition:
// events, times, indices, and the inputs that one machine has for another. Whatever changes a state
// of a record goes through here.
#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// The checkpoint from which the job's next attempt starts: the newest of its own, else the one that
// it was created from; none where it starts anew.
std::optional<CheckpointRef> ResumePoint(const Snapshot& snapshot, const JobRecord& job);

// "worker:lab-1".
std::string ActorOf(absl::string_view worker);

// Borrows the state for one input or one timer; costs nothing to make. `actor` is who asks.
class Stepper {
 public:
  Stepper(YardState& state, Now now) : yard_(state), now_(now) {}

  // stepper_jobs.cc

  // JOB_NOT_FOUND; JOB_STATE_CONFLICT where the job's state refuses the input. What it ignores is
  // fine.
  absl::Status StepJob(JobId id, const job_fsm::Input& input, absl::string_view actor,
                       std::string message);
  // The job has come to wait: bookkeeping only.
  void EnterQueue(JobId id);
  // Until a delayed start is to be looked at again; 0 or less: it is over.
  int64_t StartDelay(const Submission& submission) const;
  void AddCheckpoint(CheckpointRecord checkpoint, const std::string& actor);
  // `checkpoint` is stored from now on (sign 1), or no longer (-1).
  void CountStored(const CheckpointRecord& checkpoint, int64_t sign);

  // stepper_attempts.cc

  void StepAttempt(AttemptId id, const attempt_fsm::Input& input, absl::string_view actor);
  // Moves the time that the attempt has run into its job's record. Run time is counted by the
  // monotonic clock and stored with each report of progress: what a server that dies forgets is
  // less than a sync interval.
  void CountRunTime(JobId id, LiveAttempt& live);
  // The part must exist.
  AttemptPart& EditPart(AttemptId id, const std::string& worker);
  void LosePart(const std::string& worker, AttemptId id, std::string reason, std::string message);
  // Loses what the worker runs of the jobs that `is_lost` names.
  void LoseParts(const std::string& worker, absl::string_view why,
                 absl::FunctionRef<bool(JobId)> is_lost);
  // Ends the attempt once nothing more of it can come. Once only streams are missing, their time
  // runs.
  void CheckGone(AttemptId id, absl::string_view actor);
  void TouchWorkersOf(const AttemptRecord& attempt);

  // stepper_workers.cc

  void StepWorker(const std::string& name, const worker_fsm::Input& input, absl::string_view actor,
                  std::string message);
  // WORKER_NOT_FOUND. The stops of a drain are Drain's business.
  absl::Status StepScheduling(const std::string& name, const worker_fsm::SchedulingInput& input,
                              absl::string_view actor, std::string message);
  // See the inputs of the same names.
  absl::Status Drain(const DrainWorker& in);
  absl::Status Quarantine(const QuarantineDevice& in);
  // A part has failed on the worker before anything else of its attempt did. The first failure of
  // an attempt tells about the worker that it happened on: a hardware failure sets the rank's
  // device aside; different jobs that fail in a row drain the worker.
  void NoteFailure(const std::string& worker, AttemptId id, const Outcome& outcome);

  // stepper_stops.cc

  void AskForCheckpoint(AttemptId id);
  // Asks for a checkpoint and lets the stop wait for it. An attempt that does not run yet has
  // nothing to save: it stops at once. One that is to stop already keeps its stop, but a stop for
  // nobody's sake takes the place of one for a job's, which might be withdrawn.
  void RequestStop(AttemptId id, PendingStop stop, absl::string_view actor);
  // The pending stop of the attempt has waited for long enough.
  void FireStop(AttemptId id, absl::string_view actor);
  void DrainAttempts(const std::string& worker, int64_t within_us, absl::string_view actor);
  void Claim(JobId job, const std::vector<DeviceKey>& devices);
  void DropClaims(JobId job);
  // The claimant no longer needs what was to be freed for it: it claims nothing any more, and
  // whoever has not been stopped yet goes on. True if it had claims.
  bool Withdraw(JobId claimant);
  // A claim whose job could not be placed though nothing more is to come would keep devices idle.
  // True where there was one.
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
