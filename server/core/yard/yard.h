// The yard: all jobs, attempts, workers and checkpoints, and what becomes of them. The runtime
// drives it, one loop turn at a time:
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
// Deterministic: ordered maps, integers, time only as an argument. Not thread-safe: one thread owns
// it. Records handed out by pointer are valid until the next Apply or Settle; copies are cheap (the
// specs in them are shared).
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
#include "server/core/lifecycle/config.h"
#include "server/core/lifecycle/snapshot.h"
#include "server/core/scheduling/policy.h"
#include "server/core/yard/inputs.h"

namespace trainyard::core {

// What one loop turn brought about.
struct Turn {
  Delta delta;
  std::set<std::string> desired_changed;  // workers whose DesiredFor has a new revision
  std::set<JobId> reasons_changed;        // queued jobs whose QueueReasons differ; not stored
};

class Yard {
 public:
  // `policy` decides who is placed where; null for the full one.
  Yard(const Config& config, Snapshot snapshot, Now now,
       std::unique_ptr<const Policy> policy = nullptr);
  Yard(Yard&&) noexcept;
  Yard& operator=(Yard&&) noexcept;
  ~Yard();

  // A refused input changes nothing.
  absl::StatusOr<Reply> Apply(const Input& input, Now now);
  Turn Settle(Now now);
  // Uptime at which Settle has something to do though no input comes.
  std::optional<int64_t> NextDeadline() const;

  const Config& config() const;
  // Everything, as of the last Apply or Settle.
  const Snapshot& snapshot() const;
  const JobRecord* FindJob(JobId job) const;
  const AttemptRecord* FindAttempt(AttemptId attempt) const;
  const WorkerRecord* FindWorker(absl::string_view worker) const;
  const CheckpointRecord* FindCheckpoint(const CheckpointRef& checkpoint) const;
  // Ascending by step.
  std::vector<const CheckpointRecord*> CheckpointsOf(JobId job) const;
  // Every reason why a queued job waits, in sentences; empty for other jobs.
  std::vector<std::string> QueueReasons(JobId job) const;
  // The first jobs of the queue in its order, as of the last pass; at most kFrontMax.
  std::vector<JobId> QueueFront() const;
  // All of it: what would change it, and when the job will start. Empty for jobs that do not wait.
  Explanation Explain(JobId job, Now now) const;
  // The same for a job that nobody has submitted yet; without reasons where it would start at once.
  Explanation Preview(const Submission& submission, Now now) const;
  // What everybody has used, decayed, up to now.
  std::map<UsageKey, UsageRecord> Usage(Now now) const;
  // Wall time of the worker's last sync.
  int64_t LastSeen(absl::string_view worker) const;
  // What its devices did at the last sync, by name; empty while the worker is not ACTIVE.
  std::map<std::string, DeviceUsage> UsageOn(absl::string_view worker) const;
  // Devices of a worker that are held, with the attempt that holds each.
  std::map<std::string, AttemptId> HoldersOn(absl::string_view worker) const;
  std::optional<AttemptId> HolderOf(absl::string_view worker, absl::string_view device) const;

  // What the worker should have, by attempt. What is not listed must be stopped and removed.
  std::vector<DesiredAttempt> DesiredFor(absl::string_view worker) const;
  // Revision of that, as of the last Settle; grows within a session. 0 without a session.
  int64_t DesiredRevision(absl::string_view worker) const;

  // UNKNOWN_SESSION.
  absl::StatusOr<std::string> WorkerOfSession(absl::string_view session) const;
  // Whether a stream of logs or metrics may be appended to: the session lives, and the attempt was
  // placed on its worker under that token. A superseded attempt may still deliver its streams.
  // UNKNOWN_SESSION, NOT_FOUND, STALE_FENCING_TOKEN.
  absl::Status CheckStream(absl::string_view session, AttemptId attempt, int64_t token) const;
  // The same for checkpoints: only the job's newest attempt.
  absl::Status CheckCheckpointWriter(absl::string_view session, AttemptId attempt,
                                     int64_t token) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::core
