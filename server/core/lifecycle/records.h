// Defines the records of the server: the core decides on them, the store keeps them, and the API
// shows them. They are plain values. Times are wall microseconds since 1970 (0: unset); the core
// never decides by them. Doubles are carried for people and never computed with.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "server/core/lifecycle/attempt_fsm.h"
#include "server/core/lifecycle/job_fsm.h"
#include "server/core/lifecycle/submission.h"
#include "server/core/lifecycle/words.h"
#include "server/core/lifecycle/worker_fsm.h"

namespace trainyard::core {

using JobState = job_fsm::State;
using AttemptState = attempt_fsm::State;
using WorkerState = worker_fsm::State;

// The state of a training, as the trainer reports it.
struct Progress {
  int64_t step = 0;
  int64_t eta_us = 0;  // expected time left; 0 means unknown
  // The whole report as bytes, for those who show it. The core does not read them. All copies share
  // them. Null before the first report.
  std::shared_ptr<const std::string> report = nullptr;
  // Says what the trainer cannot write because its disk is full. It is empty otherwise.
  std::string disk_full = {};

  friend bool operator==(const Progress&, const Progress&);
};

// Maps names to values. Two NaNs are equal here, so that a record equals its copy.
struct MetricValues {
  std::map<std::string, double> values;

  friend bool operator==(const MetricValues&, const MetricValues&);
};

struct JobRecord {
  JobId id;
  std::shared_ptr<const Submission> submission;  // shared by all copies; never null
  JobState state;
  StopReason stop_reason = StopReason::kNone;  // of the last stop; cleared when placed again
  int32_t attempt = 0;                         // the newest; 0 if there is none yet
  int64_t fencing_token = 0;                   // of the newest attempt
  int32_t retries = 0;                         // how much of max_retries is used
  // Attempts that failed or were lost, including those that cost no retry.
  int32_t failures = 0;
  int64_t run_time_us = 0;  // time in RUNNING, over all attempts
  int64_t create_us = 0;
  int64_t start_us = 0;  // first RUNNING
  int64_t end_us = 0;
  Progress progress;
  MetricValues metrics;  // last value of each train.* and test.* metric
  std::string data_digest;
  std::string model_digest;
  std::string worker_version;  // of rank 0 of the newest attempt
  // This is what `train.precision: auto` became when the first attempt was placed, and all attempts
  // keep it. It is kNone before that, and if the spec names a precision itself.
  Precision precision = Precision::kNone;
  int64_t revision = 0;  // commit of its last change: the etag
  // The first job of the array, and the index of this job in it. Both are 0 if the job belongs to
  // no array. The index is `id - array`, because the jobs of an array have consecutive numbers.
  JobId array;
  // The number of devices times the time held, summed over all attempts.
  int64_t device_time_us = 0;
  int32_t preemptions = 0;  // attempts stopped for a better claim
  // They are gone for good: somebody deleted them, or they were older than what the server keeps.
  bool logs_deleted = false;
  bool metrics_deleted = false;

  int32_t array_index() const {
    return array == JobId{} ? 0 : static_cast<int32_t>(id.value - array.value);
  }

  friend bool operator==(const JobRecord& a, const JobRecord& b);
};

// The bytes that the logs and the metrics of a job take on the server's disk. They are measured now
// and then, and not stored.
struct StreamBytes {
  int64_t logs = 0;
  int64_t metrics = 0;

  int64_t sum() const { return logs + metrics; }
  friend bool operator==(const StreamBytes&, const StreamBytes&) = default;
};

// Returns the devices that the job's next attempt asks for: those of its submission, which must
// compute in bf16 if that became the job's precision.
Demand DemandOf(const JobRecord& job);

struct RankPlacement {
  int32_t rank = 0;
  std::string worker;
  std::string device;    // empty for a rank without one
  HostAmount held = {};  // of the host; each is 0 if it is not divided

  friend bool operator==(const RankPlacement&, const RankPlacement&) = default;
};

// The end of an attempt on one worker.
struct Outcome {
  OutcomeKind kind = OutcomeKind::kNone;
  Failure failure;  // for kFailed; for kStopped, `reason` says why
  int64_t step = 0;
  int32_t failed_rank = 0;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The part of an attempt that one worker has.
struct AttemptPart {
  std::string worker;
  PartState state = PartState::kAssigned;
  Outcome outcome;  // for kExited and later

  friend bool operator==(const AttemptPart&, const AttemptPart&) = default;
};

struct AttemptRecord {
  AttemptId id;
  int64_t fencing_token = 0;
  AttemptState state;
  std::vector<RankPlacement> ranks;  // by rank
  std::vector<AttemptPart> parts;    // sorted by worker; one for each worker in `ranks`
  std::optional<CheckpointRef> resume_from;
  int64_t create_us = 0;
  int64_t start_us = 0;  // when all ranks ran
  int64_t end_us = 0;
  Isolation isolation = Isolation::kUnspecified;  // the weakest of its parts
  JobId guest_of;  // the job that kept its devices (see RunningJob::guest); 0 if there is none

  friend bool operator==(const AttemptRecord&, const AttemptRecord&) = default;
};

// Returns the part of `attempt` on `worker`, or null if there is none.
const AttemptPart* FindPart(const AttemptRecord& attempt, absl::string_view worker);

struct DeviceRecord {
  std::string name;
  std::string type;
  int64_t memory_bytes = 0;
  DeviceHealth health = DeviceHealth::kOk;
  std::string health_reason;
  std::vector<int32_t> cpus;
  int32_t threads = 0;
  std::string product;
  int32_t island = 0;      // devices that share an NVLink island of a worker have the same number
  std::string quarantine;  // why an operator or this server has set it aside; empty if nobody has
  bool bf16 = false;       // it computes in bf16

  friend bool operator==(const DeviceRecord&, const DeviceRecord&) = default;
};

// Returns what `train.precision: auto` becomes for a job that is first placed on these devices:
// bf16 on GPUs of one type that compute in it, and f32 on CPUs, on other GPUs and on mixed types.
Precision AutoPrecision(const std::vector<const DeviceRecord*>& devices);

struct WorkerRecord {
  std::string name;
  std::string uid;
  std::string version;
  std::string hostname;
  std::string address;
  WorkerState state;
  Scheduling scheduling = Scheduling::kEligible;
  std::vector<DeviceRecord> devices;  // in the worker's own order
  int64_t create_us = 0;
  int64_t last_seen_us = 0;  // as of the last change of this record; Yard::LastSeen is newer
  int64_t revision = 0;
  std::map<std::string, std::string> labels;
  std::vector<JobId> failed_jobs;  // different jobs that failed there since the last success
  // The resources of its host that jobs may hold. Each is 0 if the worker has not told it, and is
  // then not divided.
  HostAmount host = {};

  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;
};

// The data sets that a worker has told. They are not stored: a worker tells them in each session.
struct WorkerDatasets {
  // The hash of the training split of each data set that can be used; empty if it is unknown.
  std::map<std::string, std::string> digests;
  // Everything that the worker has told, as bytes, for those who show it.
  std::string report;

  friend auto operator<=>(const WorkerDatasets&, const WorkerDatasets&) = default;
};

struct CheckpointFile {
  std::string name;
  int64_t size = 0;
  std::string hash;

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// The results of a checkpoint's weights on the test split, as its state.json states them. They come
// with the checkpoint, because the stream of metrics may be late. The numbers are finite.
struct CheckpointEvaluation {
  double loss = 0;
  double accuracy = 0;

  friend bool operator==(const CheckpointEvaluation&, const CheckpointEvaluation&) = default;
};

struct CheckpointRecord {
  CheckpointRef id;
  int32_t attempt = 0;
  std::vector<CheckpointFile> files;
  int64_t create_us = 0;
  std::optional<CheckpointEvaluation> evaluation = {};  // unset if it was not evaluated
  // Says what the server found wrong with its files when it last hashed them. It is empty while
  // nothing is known to be wrong: the checkpoint is whole.
  std::string damage = {};
  // Its copy in the bucket of the server: "s3://BUCKET/FOLDER/checkpoints/12/600". It is empty if
  // there is none.
  std::string copy = {};
  // Says why the last try to copy it has failed; empty if none has failed since the last success.
  std::string copy_failure = {};

  bool is_whole() const { return damage.empty(); }
  // Returns the bytes of its files.
  int64_t bytes() const {
    int64_t sum = 0;
    for (const CheckpointFile& file : files) sum += file.size;
    return sum;
  }

  friend bool operator==(const CheckpointRecord&, const CheckpointRecord&) = default;
};

// Returns true if `a` is a better checkpoint than `b` for the job of this submission. The better
// evaluation wins, and among equal ones the earlier checkpoint. A checkpoint that was evaluated is
// better than one that was not.
bool IsBetter(const Submission& submission, const CheckpointRecord& a, const CheckpointRecord& b);
// Returns the best of a job's whole checkpoints, or null if none of them was evaluated. `Pointers`
// is a list of pointers, raw or shared.
template <typename Pointers>
const CheckpointRecord* BestCheckpoint(const Submission& submission, const Pointers& checkpoints) {
  const CheckpointRecord* best = nullptr;
  for (const auto& checkpoint : checkpoints) {
    if (!checkpoint->evaluation.has_value() || !checkpoint->is_whole()) continue;
    if (best == nullptr || IsBetter(submission, *checkpoint, *best)) best = &*checkpoint;
  }
  return best;
}

// The actor of events that happened elsewhere and came with an imported job. Nobody else has it.
inline constexpr char kImportedActor[] = "imported";

// One row of the visible history.
struct EventRecord {
  int64_t sequence = 0;
  int64_t time_us = 0;
  std::string resource;  // jobs/12, jobs/12/attempts/1, workers/lab-1
  std::string type;      // JOB_QUEUED, ATTEMPT_PLACED, WORKER_UNREACHABLE
  std::string actor;     // user:anna, scheduler, worker:lab-1
  std::string message;

  friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

// Returns the resource to whose history an event belongs: `jobs/12` for `jobs/12/attempts/1`.
std::string EventParent(absl::string_view resource);

// A CreateJob that was answered. It is kept so that a repeated call returns the same job.
struct RequestRecord {
  std::string request_id;
  std::string request_hash;
  JobId job;
  int64_t create_us = 0;

  friend bool operator==(const RequestRecord&, const RequestRecord&) = default;
};

// The limits of one user or one project. 0 means no limit.
struct QuotaRecord {
  // "user:anna", "project:vision"; "user:*" and "project:*" are for all others.
  std::string subject;
  int32_t devices = 0;      // held at a time
  int32_t queued_jobs = 0;  // waiting at a time
  int32_t submits_per_minute = 0;
  int64_t stored_bytes = 0;  // of checkpoints, logs and metrics
  int32_t weight = 0;        // share of the pool compared with others; 0 means 1
  HostAmount held = {};      // of hosts, at a time

  friend bool operator==(const QuotaRecord&, const QuotaRecord&) = default;
};

// Devices that are reserved for some users and projects during some time.
struct ReservationRecord {
  std::string name;
  int64_t start_us = 0;                                      // wall
  int64_t end_us = 0;                                        // wall
  std::vector<std::pair<std::string, std::string>> devices;  // worker, device; sorted
  std::vector<std::string> subjects;                         // "user:anna", "project:vision"
  std::string actor;                                         // who made it

  friend bool operator==(const ReservationRecord&, const ReservationRecord&) = default;
};

// The device time that a user has used within a project, decayed. Fair share is measured by it.
struct UsageRecord {
  std::string project;
  std::string user;
  int64_t device_us = 0;  // as of Snapshot::pool_time_us

  friend bool operator==(const UsageRecord&, const UsageRecord&) = default;
};
using UsageKey = std::pair<std::string, std::string>;  // project, user

}  // namespace trainyard::core
