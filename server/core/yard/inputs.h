// Defines everything that the yard can be told. Inputs are plain values, so they can be queued,
// recorded and replayed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/core/lifecycle/records.h"

namespace trainyard::core {

// In all inputs, `actor` is who asks ("user:anna"), and `reason` is for the history and may be
// empty.

// Submits a validated, resolved job. A repeated request_id with the same hash is answered with the
// same job, and with another hash it returns REQUEST_ID_REUSED. An empty request_id is never
// matched. Returns NOT_FOUND if the parent checkpoint, a job that it waits for or the original of a
// clone does not exist, QUOTA_EXCEEDED with the subject, the limit and the amount in use, and
// CANNOT_RUN if the known workers could never hold the job (admission.h). For an array
// (Submission::array_size > 0), Reply::job is its first job; the numbers of the others follow.
struct SubmitJob {
  std::shared_ptr<const Submission> submission;
  std::string request_id;
  std::string request_hash;
  std::string actor;
};

// A job that ran elsewhere, with what it has besides checkpoints and metrics.
struct ImportedJob {
  JobRecord job;                        // it has ended and has a submission; its number comes later
  std::vector<AttemptRecord> attempts;  // they have ended and hold nothing; the same holds for them
  // The history in its order. Each resource is what follows the name of the job: "/attempts/1".
  std::vector<EventRecord> events;
};

// Makes a job of one that ran elsewhere. It counts as submitted now, so that it is not deleted for
// its age, and keeps the times of its run. A repeated request is answered as for SubmitJob, but
// once its job was deleted, it makes another. Returns QUOTA_EXCEEDED.
struct ImportJob {
  std::shared_ptr<const ImportedJob> imported;
  std::string request_id;
  std::string request_hash;
  std::string actor;
};

// Makes a verified checkpoint of an imported job visible. Returns NOT_FOUND, NOT_IMPORTED or
// QUOTA_EXCEEDED. One of that step that is whole stays (Reply::existed).
struct CommitImport {
  CheckpointRef checkpoint;
  std::vector<CheckpointFile> files;
  std::optional<CheckpointEvaluation> evaluation = {};
  int64_t create_us = 0;  // 0 means now
  std::string actor;
};

// Verbs on a job. They return NOT_FOUND, or JOB_STATE_CONFLICT if the verb makes no sense in the
// job's state. A verb whose effect is there already changes nothing.
struct CancelJob {
  JobId job;
  std::string actor;
  std::string reason;
};
struct SuspendJob {
  JobId job;
  std::string actor;
  std::string reason;
};
struct ResumeJob {
  JobId job;
  std::string actor;
};

// Begins a session and ends the one before. Returns WORKER_NAME_TAKEN while a worker with that name
// and another uid is active, or may still run attempts.
struct RegisterWorker {
  std::string worker;
  std::string uid;
  std::string session;  // chosen by the caller, never used before
  std::string version;
  std::string hostname;
  std::string address;
  std::vector<DeviceRecord> devices;
  std::map<std::string, std::string> labels = {};
  std::string run_as_user = {};  // the only user whose jobs it runs; empty means everybody's
  HostAmount host = {};          // what jobs may hold of its host; empty if it has not told
};

// One attempt as a worker sees it. All values are absolute.
struct ObservedAttempt {
  AttemptId attempt;
  int64_t fencing_token = 0;
  ObservedState state = ObservedState::kStarting;
  std::optional<Progress> progress;
  Outcome outcome;  // for kExited
  std::map<std::string, std::string> rendezvous;
  std::string data_digest;
  std::string model_digest;
  Isolation isolation = Isolation::kUnspecified;
  bool drained = false;  // for kExited: true if all its streams have been acknowledged
  MetricValues metrics;
};

// Reports every attempt of which the worker has a run directory. It renews the worker's lease if it
// shows that the worker hears the answers (contacts.h). A report with a smaller sequence than an
// earlier one has no other effect. UNKNOWN_SESSION means that the worker must register again.
struct SyncReport {
  std::string session;
  int64_t sequence = 0;
  // The revision of the desired state that the worker had acted upon when it wrote this report. It
  // is 0 at the start of each session.
  int64_t desired_revision = 0;
  std::vector<ObservedAttempt> attempts;
  // The devices whose health may differ from what was registered.
  std::vector<DeviceRecord> devices;
  // The present activity of its devices, as bytes by name of the device. No decision depends on it,
  // and it is not stored.
  std::map<std::string, std::string> usage = {};
  // The number of reports of this session that were answered, as far as the worker has received the
  // answers. It is unset if the worker does not count them.
  std::optional<int64_t> answers_heard = {};
  // The data sets that the worker has; null if it does not tell them.
  std::shared_ptr<const WorkerDatasets> datasets = {};
  // The users whose jobs the worker cannot run, and why.
  std::map<std::string, std::string> refused_users = {};
  // If it is not 0, the worker's daemon is to end: its attempts stop after a checkpoint, or when
  // this time is over, and it gets no others in this session.
  int64_t leave_within_us = 0;
};

// Makes a verified checkpoint visible. Returns STALE_FENCING_TOKEN if the attempt was superseded.
// If a checkpoint of that step is committed already, that one stays (Reply::existed), unless it is
// damaged: then the new one takes its place.
struct CommitCheckpoint {
  std::string session;
  AttemptId attempt;
  int64_t fencing_token = 0;
  int64_t step = 0;
  std::vector<CheckpointFile> files;
  std::optional<CheckpointEvaluation> evaluation = {};
  // For outputs, whose step is kOutputsStep: what is no part of them, and why.
  std::string left_out = {};
};

// The server has hashed the files of the checkpoint `seen`. `damage` says what is wrong with them;
// if it is empty, they are whole. Returns NOT_FOUND if the checkpoint was deleted in the meantime.
// A verdict on a record that has changed since is dropped.
struct JudgeCheckpoint {
  CheckpointRecord seen;
  std::string damage;
};

// The server has copied the checkpoint `seen` to its bucket, at `copy`, or has failed to for the
// reason `failure`, and one of both is empty. Returns NOT_FOUND if the checkpoint was deleted in
// the meantime. A note about a checkpoint that another one has replaced since is dropped.
struct NoteCheckpointCopy {
  CheckpointRecord seen;
  std::string copy;
  std::string failure;
};

// The server has lost metric points of the job, which its history tells. `message` says which.
// Returns NOT_FOUND if the job was deleted.
struct NoteLostMetrics {
  JobId job;
  std::string message;
};

// Verbs on a worker. They return NOT_FOUND if there is no such worker.
struct CordonWorker {
  std::string worker;
  std::string actor;
  std::string reason;
};
struct UncordonWorker {
  std::string worker;
  std::string actor;
};
// Cordons the worker, asks what runs there for a checkpoint, and stops it once that is committed,
// or when `within_us` is over (0 means Config::checkpoint_wait_us). Those jobs queue again, free of
// charge.
struct DrainWorker {
  std::string worker;
  std::string actor;
  std::string reason;
  int64_t within_us = 0;
};
// Somebody vouches that the host of an UNREACHABLE worker is off: its attempts are lost at once.
// Returns FAILED_PRECONDITION while it is ACTIVE.
struct DeclareWorkerLost {
  std::string worker;
  std::string actor;
  std::string reason;
};
// Forgets a worker. Returns FAILED_PRECONDITION while it is ACTIVE, and while it has parts of
// attempts that have not ended.
struct DeleteWorker {
  std::string worker;
  std::string actor;
  std::string reason;
};
// Sets one device aside, or takes it back. An attempt that runs there continues. Returns NOT_FOUND
// if there is no such device.
struct QuarantineDevice {
  std::string worker;
  std::string device;
  std::string actor;
  std::string reason;
};
struct ReleaseDevice {
  std::string worker;
  std::string device;
  std::string actor;
};

// The rules of sharing. A quota replaces the earlier one of its subject. Deleting a quota that does
// not exist changes nothing.
struct SetQuota {
  QuotaRecord quota;
  std::string actor;
};
struct DeleteQuota {
  std::string subject;
  std::string actor;
};
// Reserves devices by name, or `count` of them that are chosen here, free ones first. Returns
// INVALID_ARGUMENT if the time has passed, NOT_FOUND if the pool has no such device, ALREADY_EXISTS
// if the name is taken, and FAILED_PRECONDITION if other reservations leave too few devices at that
// time.
struct CreateReservation {
  ReservationRecord reservation;
  int32_t count = 0;  // used together with `type` if `reservation.devices` is empty
  std::string type;
};
// Deletes a reservation. Returns NOT_FOUND if there is none.
struct DeleteReservation {
  std::string name;
  std::string actor;
};
// The parts of a job that can be deleted while the job itself stays.
struct JobParts {
  bool checkpoints = false;
  bool logs = false;
  bool metrics = false;

  bool any() const { return checkpoints || logs || metrics; }
  friend bool operator==(const JobParts&, const JobParts&) = default;
};
// Deletes a job that has ended, or only some parts of it if any are given. Deleting a deleted job
// succeeds. deletion.h explains JOB_NOT_FOUND and JOB_STATE_CONFLICT.
struct DeleteJob {
  JobId job;
  JobParts parts;
  std::string actor;
};
// Says what the logs and metrics of these jobs take now. Jobs that are gone are left out.
struct NoteStreams {
  std::map<JobId, StreamBytes> bytes;
};

// Workers that a provider could bring: `count` of them are like `worker`, which has no name yet.
struct PossibleWorkers {
  std::string provider;
  WorkerRecord worker;
  std::string user;  // the only user whose jobs they would run; empty means those of everybody
  int32_t count = 0;
  // The data sets that they find; null if nobody has said, so that they may have any.
  std::shared_ptr<const WorkerDatasets> datasets = {};
};

// Says which workers providers could bring, in place of what was said before. Jobs that need them
// are not refused. It is not stored.
struct SetPossibleWorkers {
  std::vector<PossibleWorkers> workers;
};

// Says that no new job may get the number of this one or a lower one, since there was such a job
// before the state was restored.
struct SkipJobNumbers {
  JobId last;
};

using Input =
    std::variant<SubmitJob, ImportJob, CommitImport, CancelJob, SuspendJob, ResumeJob,
                 RegisterWorker, SyncReport, CommitCheckpoint, JudgeCheckpoint, NoteCheckpointCopy,
                 NoteLostMetrics, CordonWorker, UncordonWorker, DrainWorker, DeclareWorkerLost,
                 DeleteWorker, QuarantineDevice, ReleaseDevice, SetQuota, DeleteQuota,
                 CreateReservation, DeleteReservation, DeleteJob, NoteStreams, SetPossibleWorkers,
                 SkipJobNumbers>;

struct Reply {
  JobId job;             // for SubmitJob, ImportJob and the verbs on jobs
  bool existed = false;  // true for a repeated SubmitJob, or a checkpoint that was committed before
  std::vector<std::string> warnings = {};  // for SubmitJob: what the user should know
};

// The orders that the yard has for a worker.

enum class DesiredAction {
  kRun,     // make it run, if it does not run already
  kStop,    // stop it, by `stop_reason` and `stop_grace_us`
  kRemove,  // its end has been noted; remove it once drained
};

struct DesiredAttempt {
  AttemptId attempt;
  int64_t fencing_token = 0;
  DesiredAction action = DesiredAction::kRun;
  // These are for kRun.
  int32_t world_size = 0;
  std::vector<RankPlacement> ranks;  // those on this worker
  std::optional<CheckpointRef> resume_from;
  // The checkpoint whose weights it begins with, if it resumes from none.
  std::optional<CheckpointRef> init_from;
  std::map<std::string, std::string> rendezvous;  // keys of the ranks on other workers
  bool spans_workers = false;
  // Grows with each request, and is 0 before the first; each new number asks for one checkpoint.
  int64_t checkpoint_request = 0;
  int32_t failures = 0;     // attempts of the job that failed or were lost
  int64_t run_time_us = 0;  // of all its attempts
  // These are for kStop.
  StopReason stop_reason = StopReason::kNone;
  int64_t stop_grace_us = 0;

  friend bool operator==(const DesiredAttempt&, const DesiredAttempt&) = default;
};

}  // namespace trainyard::core
