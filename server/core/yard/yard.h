// The yard knows all jobs, attempts, workers and checkpoints, and decides what becomes of them. The
// runtime drives it, one loop turn at a time:
//
//   for each input that has come:  reply = yard.Apply(input, now)
//   turn = yard.Settle(now)                    // timers, placement
//   store.Commit(turn.delta)                   // if not empty; a failure ends the process
//   only now: answer the inputs, wake the workers of turn.desired_changed, show turn.delta
//   sleep until the next input or yard.NextDeadline()
//
// Nothing has to be replayed after a crash: what a worker should do is a function of the state
// (DesiredFor), and timers are computed from it. Sessions, leases and rendezvous keys are not
// stored; workers register again and report what runs, and it is adopted.
//
// It is deterministic: its maps are ordered, it computes with integers, and time is an argument. It
// is not thread-safe: one thread owns it. Records that it hands out by pointer are valid until the
// next Apply or Settle; copies are cheap, because the specs in them are shared.
//
// A turn inside: Apply changes the state by an input (yard_inputs.cc, reports.h). Settle fires the
// timers that are due (timers.h), makes a plan if something has changed that matters to a pass
// (yard_plan.cc), does what it says, and gives new orders to workers. Everything that changes the
// state of a record goes through the stepper (stepper.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/core/scheduling/policy.h"
#include "server/core/yard/deletion.h"
#include "server/core/yard/inputs.h"
#include "server/core/yard/picture.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// The result of one loop turn.
struct Turn {
  Delta delta;
  std::set<std::string> desired_changed;  // workers whose DesiredFor has a new revision
  // Jobs whose QueueReasons have changed, which are not stored.
  std::set<JobId> reasons_changed;
  // Jobs whose FindStreams has changed, which is not stored either.
  std::set<JobId> streams_changed;
};

class Yard {
 public:
  // Makes a yard. `policy` decides what is placed where; null stands for the full one.
  Yard(const Config& config, Snapshot snapshot, Now now,
       std::unique_ptr<const Policy> policy = nullptr);
  Yard(Yard&&) = default;
  Yard& operator=(Yard&&) = default;

  // Applies an input. A refused input changes nothing.
  absl::StatusOr<Reply> Apply(const Input& input, Now now);
  Turn Settle(Now now);
  // Returns the uptime at which Settle has something to do even if no input comes.
  std::optional<int64_t> NextDeadline() const;

  const Config& config() const { return state_.config; }
  // Returns all records, as of the last Apply or Settle.
  const Snapshot& snapshot() const { return state_.snapshot(); }
  const JobRecord* FindJob(JobId job) const;
  const AttemptRecord* FindAttempt(AttemptId attempt) const;
  const WorkerRecord* FindWorker(absl::string_view worker) const;
  const CheckpointRecord* FindCheckpoint(const CheckpointRef& checkpoint) const;
  // Returns the checkpoints in ascending order of their steps.
  std::vector<const CheckpointRecord*> CheckpointsOf(JobId job) const;
  // Returns the error with which a SubmitJob of this submission would be refused now, or the
  // warnings with which it would be accepted.
  absl::StatusOr<std::vector<std::string>> Admit(const Submission& submission, Now now) const;
  // Returns what the input would delete; see deletion.h.
  absl::StatusOr<Deletion> PlanDeletion(const DeleteJob& in) const {
    return core::PlanDeletion(state_, in);
  }
  // Returns the error with which a DeleteWorker of this name would be refused now.
  absl::Status CheckDeletion(const std::string& worker) const;
  // Returns the jobs, or the first jobs of arrays, that were cloned from the job. Some of them may
  // have been deleted.
  std::set<JobId> ClonesOf(JobId job) const { return state_.lineage.ClonesOf(job); }
  // Returns what the job's logs and metrics take, or null if that was not measured yet.
  const StreamBytes* FindStreams(JobId job) const { return state_.accounts.FindStreams(job); }
  // Returns the bytes that count against the quota of a subject.
  int64_t StoredBy(const std::string& subject) const { return state_.accounts.StoredBy(subject); }
  // Returns the attempt to which what is imported for the job belongs: its newest. Returns
  // NOT_FOUND if there is no such job, NOT_IMPORTED if it ran here, FAILED_PRECONDITION if it has
  // no attempt, and QUOTA_EXCEEDED if `bytes` more cannot be stored for it.
  absl::StatusOr<AttemptId> CheckImport(JobId job, int64_t bytes) const;  // imports.cc
  // Returns every reason why a queued job waits, and for one that runs, which of its workers are
  // out of contact, in sentences. There are none for other jobs.
  std::vector<std::string> QueueReasons(JobId job) const;
  // Returns the first jobs of the queue in its order, as of the last pass, at most kFrontMax.
  std::vector<JobId> QueueFront() const;
  // Returns the reasons, what would change them, and when the job will start. The result is empty
  // for jobs that do not wait.
  // `accept` decides which changes are offered; if it is empty, all are.
  Explanation Explain(JobId job, Now now, const AcceptChange& accept = {}) const;
  // Explains a job that nobody has submitted yet. There are no reasons if it would start at once.
  Explanation Preview(const Submission& submission, Now now, const AcceptChange& accept = {}) const;
  // Returns the jobs that a pass would start now if the workers that a provider could bring were
  // there, each with the numbers, from 0, of those that it would use.
  std::map<JobId, std::set<int32_t>> WantedOf(const std::string& provider, Now now) const;
  // Returns what everybody has used up to now, decayed.
  std::map<UsageKey, UsageRecord> Usage(Now now) const;
  // Returns the wall time of the worker's last sync.
  int64_t LastSeen(absl::string_view worker) const;
  // Returns what its devices did at the last sync, as bytes by name. The result is empty while the
  // worker is not ACTIVE.
  std::map<std::string, std::string> UsageOn(absl::string_view worker) const;
  // Returns the data sets that the worker has told, or null if it has told none.
  const WorkerDatasets* DatasetsOn(absl::string_view worker) const;
  // Returns the devices of a worker that are held, with the attempt that holds each.
  std::map<std::string, AttemptId> HoldersOn(absl::string_view worker) const;
  // Returns what ranks hold of the worker's host.
  HostAmount HeldOn(absl::string_view worker) const;

  // Returns what the worker should have, by attempt. Attempts that are not listed must be stopped
  // and removed.
  std::vector<DesiredAttempt> DesiredFor(absl::string_view worker) const;
  // Returns the revision of these orders, as of the last Settle. It grows within a session, and is
  // 0 without a session.
  int64_t DesiredRevision(absl::string_view worker) const;

  // Returns the worker, or UNKNOWN_SESSION.
  absl::StatusOr<std::string> WorkerOfSession(absl::string_view session) const;
  // Refuses to append to a stream of logs or metrics unless the session lives and the attempt was
  // placed on its worker under that token. A superseded attempt may still deliver its streams.
  // Returns UNKNOWN_SESSION, NOT_FOUND or STALE_FENCING_TOKEN.
  absl::Status CheckStream(absl::string_view session, AttemptId attempt, int64_t token) const;
  // Refuses checkpoints in the same cases, and also those of any attempt but the job's newest.
  absl::Status CheckCheckpointWriter(absl::string_view session, AttemptId attempt,
                                     int64_t token) const;

 private:
  // yard_inputs.cc
  absl::StatusOr<Reply> Take(const SubmitJob& in, Now now);
  absl::StatusOr<Reply> Take(const ImportJob& in, Now now);     // imports.cc
  absl::StatusOr<Reply> Take(const CommitImport& in, Now now);  // imports.cc
  absl::StatusOr<Reply> Take(const CancelJob& in, Now now);
  absl::StatusOr<Reply> Take(const SuspendJob& in, Now now);
  absl::StatusOr<Reply> Take(const ResumeJob& in, Now now);
  absl::StatusOr<Reply> Take(const RegisterWorker& in, Now now);
  absl::StatusOr<Reply> Take(const SyncReport& in, Now now);
  absl::StatusOr<Reply> Take(const CommitCheckpoint& in, Now now);
  absl::StatusOr<Reply> Take(const JudgeCheckpoint& in, Now now);
  absl::StatusOr<Reply> Take(const NoteCheckpointCopy& in, Now now);
  absl::StatusOr<Reply> Take(const NoteLostMetrics& in, Now now);
  absl::StatusOr<Reply> Take(const CordonWorker& in, Now now);
  absl::StatusOr<Reply> Take(const UncordonWorker& in, Now now);
  absl::StatusOr<Reply> Take(const DrainWorker& in, Now now);
  absl::StatusOr<Reply> Take(const DeclareWorkerLost& in, Now now);
  absl::StatusOr<Reply> Take(const DeleteWorker& in, Now now);
  absl::StatusOr<Reply> Take(const QuarantineDevice& in, Now now);
  absl::StatusOr<Reply> Take(const ReleaseDevice& in, Now now);
  absl::StatusOr<Reply> Take(const SetQuota& in, Now now);
  absl::StatusOr<Reply> Take(const DeleteQuota& in, Now now);
  absl::StatusOr<Reply> Take(const CreateReservation& in, Now now);
  absl::StatusOr<Reply> Take(const DeleteReservation& in, Now now);
  absl::StatusOr<Reply> Take(const SetPossibleWorkers& in, Now now);
  absl::StatusOr<Reply> Take(const DeleteJob& in, Now now);
  absl::StatusOr<Reply> Take(const NoteStreams& in, Now now);
  absl::StatusOr<Reply> Take(const SkipJobNumbers& in, Now now);

  // Finds the attempts in the stored records that have not ended.
  void FindLiveAttempts(Now now);
  void FindWaitingJobs(Now now);
  // Gives a new revision to each worker whose orders have changed.
  void GiveOrders();

  // Returns the uptime at which a pass is worthwhile even though nothing happens.
  std::optional<int64_t> NextPass() const;
  // Runs a pass and carries out its decisions. Returns true if another pass would find more,
  // because devices that were claimed or about to be freed are not needed after all.
  bool MakePlan(Now now);
  void EnforceReservations(Now now);
  void RefreshJobs();
  bool Start(const GangPlacement& placement, Now now);
  void Nominate(const Preemption& preemption, Now now);
  void Grow(const Growth& growth, Now now);
  void ShowReasons(Now now);

  YardState state_;
  std::unique_ptr<const Policy> policy_;
  Picture picture_;

  // The time and the record of the last pass.
  Now planned_at_;
  std::shared_ptr<const PassRecord> record_;  // null before the first pass
  std::vector<JobId> front_;
  // The reasons of the jobs of the front, as last shown.
  std::map<JobId, std::vector<std::string>> reasons_;

  Turn turn_;  // the present turn
};

}  // namespace trainyard::core
