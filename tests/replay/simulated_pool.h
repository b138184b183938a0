// Workers and trainers for a yard, in virtual time: they start what they are told to, train, write
// checkpoints, and stop, each after the time that the trace gives it. Nothing ever fails.
//
// A trainer works at the sum of its devices' speed, continues while a checkpoint is being written,
// and writes a last one when it is told to stop, if the grace suffices. What it resumes from is
// what the yard tells it; all work since is done again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "server/core/yard/yard.h"
#include "tests/replay/trace.h"

namespace trainyard::replay {

// The cost of the stops of one kind.
struct Loss {
  int64_t work_us = 0;  // device time of work done twice
  int64_t stops = 0;

  friend bool operator==(const Loss&, const Loss&) = default;
};

// Borrows both for its life. Deterministic; not thread-safe.
class SimulatedPool {
 public:
  SimulatedPool(const Trace& trace, core::Yard& yard) : trace_(trace), yard_(yard) {}

  // Registers every worker.
  void Join(core::Now now);
  // Records that `trace_job` has become the jobs from `first` on.
  void AddJob(JobId first, int64_t trace_job);
  // Uptime at which a trainer has something to report; unset: none will.
  std::optional<int64_t> NextEvent() const;
  // Tells the yard everything that has happened by now.
  void Report(core::Now now);
  // Makes these workers do what the yard wants of them.
  void Obey(const std::set<std::string>& workers, core::Now now);

  // Device time of all work that was done and not lost since.
  int64_t WorkStanding(int64_t uptime_us) const;
  int64_t LostBy(JobId job) const;
  const Loss& preempted() const { return preempted_; }
  const Loss& resized() const { return resized_; }

 private:
  enum class Phase { kStarting, kRunning, kStopping, kExited };
  enum class EventKind { kStarted, kCheckpointDue, kCheckpointWritten, kFinished, kStopped };
  struct Event {
    int64_t at_us = 0;
    int64_t sequence = 0;  // ties go by order of planning
    EventKind kind = EventKind::kStarted;
    AttemptId attempt;
    int64_t work_us = 0;  // kCheckpointWritten: what is in it

    bool operator>(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : sequence > other.sequence;
    }
  };
  // One attempt that runs.
  struct Run {
    int64_t fencing_token = 0;
    const TraceJob* job = nullptr;
    int64_t devices = 0;
    std::vector<std::string> workers;  // of its parts; the first has rank 0
    Phase phase = Phase::kStarting;
    int64_t resumed_us = 0;  // work done when it started
    int64_t saved_us = 0;    // work in its newest checkpoint
    int64_t running_us = 0;  // uptime since which it trains
    int64_t stopped_us = 0;  // kStopping, kExited: work done
    int64_t request = 0;     // the newest checkpoint request that it has seen
    core::StopReason stop_reason = core::StopReason::kNone;
    bool succeeded = false;
  };
  struct Worker {
    std::string session;
    int64_t sequence = 0;
    std::set<AttemptId> runs;
  };

  void Plan(int64_t at_us, EventKind kind, AttemptId attempt, int64_t work_us = 0);
  void Happen(const Event& event, core::Now now);
  void Commit(AttemptId id, Run& run, int64_t work_us, core::Now now);
  void Exit(AttemptId id, Run& run);
  void Start(const core::DesiredAttempt& desired, core::Now now);
  void Stop(AttemptId id, Run& run, const core::DesiredAttempt& desired, core::Now now);
  void MarkChanged(const Run& run);
  core::ObservedAttempt Observe(AttemptId id, const Run& run, int64_t uptime_us) const;
  static int64_t WorkAt(const Run& run, int64_t uptime_us);

  const Trace& trace_;
  core::Yard& yard_;
  std::map<std::string, Worker> workers_;
  std::set<std::string> changed_;  // workers with news
  std::map<AttemptId, Run> runs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t planned_ = 0;
  std::vector<int64_t> trace_jobs_;   // by JobId, from 1
  std::map<JobId, int64_t> kept_us_;  // work done by ended attempts, and not lost
  std::map<JobId, int64_t> lost_us_;
  Loss preempted_;
  Loss resized_;
};

}  // namespace trainyard::replay
