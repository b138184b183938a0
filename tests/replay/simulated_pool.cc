// Acts as the workers of a replay: knows which attempts run, how far they are, and when they end.
#include "tests/replay/simulated_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace trainyard::replay {

using core::kMillisecond;

void SimulatedPool::Join(core::Now now) {
  for (const TraceWorkers& group : trace_.workers) {
    for (int32_t i = 0; i < group.count; ++i) {
      core::RegisterWorker in;
      in.worker = absl::StrFormat("%s-%04d", group.name, i + 1);
      in.uid = in.worker;
      in.session = absl::StrCat(in.worker, "/1");
      in.version = "1";
      in.hostname = in.worker;
      in.labels = group.labels;
      for (int32_t d = 0; d < group.devices; ++d) {
        core::DeviceRecord device;
        device.name = absl::StrFormat("%s-%02d", group.type, d);
        device.type = group.type;
        device.memory_bytes = group.memory_bytes;
        device.island = d / group.island;
        in.devices.push_back(std::move(device));
      }
      workers_[in.worker].session = in.session;
      changed_.insert(in.worker);
      TY_CHECK_OK(yard_.Apply(in, now).status());
    }
  }
}

void SimulatedPool::AddJob(JobId first, int64_t trace_job) {
  const int32_t size = trace_.jobs[static_cast<size_t>(trace_job)].size();
  trace_jobs_.resize(static_cast<size_t>(first.value + size), -1);
  for (int32_t i = 0; i < size; ++i) trace_jobs_[static_cast<size_t>(first.value + i)] = trace_job;
}

std::optional<int64_t> SimulatedPool::NextEvent() const {
  if (events_.empty()) return std::nullopt;
  return events_.top().at_us;
}

void SimulatedPool::Plan(int64_t at_us, EventKind kind, AttemptId attempt, int64_t work_us) {
  events_.push({at_us, ++planned_, kind, attempt, work_us});
}

int64_t SimulatedPool::WorkAt(const Run& run, int64_t uptime_us) {
  switch (run.phase) {
    case Phase::kStarting:
      return run.resumed_us;
    case Phase::kRunning:
      return std::min(run.resumed_us + run.devices * (uptime_us - run.running_us),
                      run.job->work_us);
    case Phase::kStopping:
    case Phase::kExited:
      break;
  }
  return run.stopped_us;
}

void SimulatedPool::MarkChanged(const Run& run) {
  changed_.insert(run.workers.begin(), run.workers.end());
}

void SimulatedPool::Report(core::Now now) {
  while (!events_.empty() && events_.top().at_us <= now.uptime_us) {
    const Event event = events_.top();
    events_.pop();
    Happen(event, now);
  }
  std::set<AttemptId> exited;
  for (const std::string& name : changed_) {
    Worker& worker = workers_.at(name);
    core::SyncReport report;
    report.session = worker.session;
    report.sequence = ++worker.sequence;
    report.desired_revision = yard_.DesiredRevision(name);
    for (auto it = worker.runs.begin(); it != worker.runs.end();) {
      const Run& run = runs_.at(*it);
      report.attempts.push_back(Observe(*it, run, now.uptime_us));
      const bool is_over = run.phase == Phase::kExited;
      if (is_over) exited.insert(*it);
      it = is_over ? worker.runs.erase(it) : std::next(it);
    }
    TY_CHECK_OK(yard_.Apply(report, now).status());
  }
  changed_.clear();
  for (const AttemptId& id : exited) runs_.erase(id);
}

void SimulatedPool::Happen(const Event& event, core::Now now) {
  const auto found = runs_.find(event.attempt);
  if (found == runs_.end()) return;
  Run& run = found->second;
  switch (event.kind) {
    case EventKind::kStarted:
      if (run.phase != Phase::kStarting) return;
      run.phase = Phase::kRunning;
      run.running_us = event.at_us;
      Plan(event.at_us + (run.job->work_us - run.resumed_us + run.devices - 1) / run.devices,
           EventKind::kFinished, event.attempt);
      if (run.job->saves && run.job->checkpoint_every_us > 0) {
        Plan(event.at_us + run.job->checkpoint_every_us, EventKind::kCheckpointDue, event.attempt);
      }
      MarkChanged(run);
      return;
    case EventKind::kCheckpointDue:
      if (run.phase != Phase::kRunning) return;
      Plan(event.at_us + run.job->checkpoint_write_us, EventKind::kCheckpointWritten, event.attempt,
           WorkAt(run, event.at_us));
      Plan(event.at_us + run.job->checkpoint_every_us, EventKind::kCheckpointDue, event.attempt);
      return;
    case EventKind::kCheckpointWritten:
      if (run.phase == Phase::kExited) return;
      Commit(event.attempt, run, event.work_us, now);
      return;
    case EventKind::kFinished:
      if (run.phase != Phase::kRunning) return;
      run.stopped_us = run.job->work_us;
      run.saved_us = run.stopped_us;
      run.succeeded = true;
      Exit(event.attempt, run);
      return;
    case EventKind::kStopped:
      Exit(event.attempt, run);
      return;
  }
}

void SimulatedPool::Commit(AttemptId id, Run& run, int64_t work_us, core::Now now) {
  core::CommitCheckpoint in;
  in.session = workers_.at(run.workers.front()).session;
  in.attempt = id;
  in.fencing_token = run.fencing_token;
  in.step = work_us / kMillisecond;
  in.files = {{"state", 1, ""}};
  TY_CHECK_OK(yard_.Apply(in, now).status());
  run.saved_us = std::max(run.saved_us, in.step * kMillisecond);
}

void SimulatedPool::Exit(AttemptId id, Run& run) {
  run.phase = Phase::kExited;
  kept_us_[id.job] = run.saved_us;
  const int64_t lost = run.stopped_us - run.saved_us;
  lost_us_[id.job] += lost;
  Loss* loss = run.succeeded                                   ? nullptr
               : run.stop_reason == core::StopReason::kPreempt ? &preempted_
               : run.stop_reason == core::StopReason::kResize  ? &resized_
                                                               : nullptr;
  if (loss != nullptr) {
    loss->work_us += lost;
    ++loss->stops;
  }
  MarkChanged(run);
}

core::ObservedAttempt SimulatedPool::Observe(AttemptId id, const Run& run,
                                             int64_t uptime_us) const {
  core::ObservedAttempt seen;
  seen.attempt = id;
  seen.fencing_token = run.fencing_token;
  switch (run.phase) {
    case Phase::kStarting:
      seen.state = core::ObservedState::kStarting;
      return seen;
    case Phase::kRunning:
      seen.state = core::ObservedState::kRunning;
      break;
    case Phase::kStopping:
      seen.state = core::ObservedState::kStopping;
      break;
    case Phase::kExited:
      seen.state = core::ObservedState::kExited;
      seen.drained = true;
      seen.outcome.kind =
          run.succeeded ? core::OutcomeKind::kSucceeded : core::OutcomeKind::kStopped;
      break;
  }
  core::Progress progress;
  const int64_t done_us = WorkAt(run, uptime_us);
  progress.step = done_us / kMillisecond;
  progress.eta_us = (run.job->work_us - done_us) / run.devices;
  seen.progress = progress;
  return seen;
}

void SimulatedPool::Obey(const std::set<std::string>& workers, core::Now now) {
  for (const std::string& name : workers) {
    for (const core::DesiredAttempt& desired : yard_.DesiredFor(name)) {
      const auto found = runs_.find(desired.attempt);
      switch (desired.action) {
        case core::DesiredAction::kRun:
          if (found == runs_.end()) {
            Start(desired, now);
          } else if (Run& run = found->second; desired.checkpoint_request > run.request) {
            run.request = desired.checkpoint_request;
            if (run.phase != Phase::kRunning || !run.job->saves) break;
            Plan(now.uptime_us + run.job->checkpoint_write_us, EventKind::kCheckpointWritten,
                 desired.attempt, WorkAt(run, now.uptime_us));
          }
          break;
        case core::DesiredAction::kStop:
          if (found != runs_.end()) Stop(desired.attempt, found->second, desired, now);
          break;
        case core::DesiredAction::kRemove:
          break;  // forgotten with the report of its end
      }
    }
  }
}

// All parts of a gang start as one.
void SimulatedPool::Start(const core::DesiredAttempt& desired, core::Now now) {
  const core::AttemptRecord& attempt = *yard_.FindAttempt(desired.attempt);
  const int64_t trace_job = trace_jobs_.at(static_cast<size_t>(desired.attempt.job.value));
  Run& run = runs_[desired.attempt];
  run.fencing_token = desired.fencing_token;
  run.job = &trace_.jobs.at(static_cast<size_t>(trace_job));
  run.devices = static_cast<int64_t>(attempt.ranks.size());
  run.workers.push_back(attempt.ranks.front().worker);
  for (const core::AttemptPart& part : attempt.parts) {
    if (part.worker != run.workers.front()) run.workers.push_back(part.worker);
    workers_.at(part.worker).runs.insert(desired.attempt);
  }
  if (desired.resume_from.has_value()) run.resumed_us = desired.resume_from->step * kMillisecond;
  run.saved_us = run.resumed_us;
  run.request = desired.checkpoint_request;
  Plan(now.uptime_us + run.job->start_us, EventKind::kStarted, desired.attempt);
}

void SimulatedPool::Stop(AttemptId id, Run& run, const core::DesiredAttempt& desired,
                         core::Now now) {
  if (run.phase == Phase::kStopping || run.phase == Phase::kExited) return;
  run.stopped_us = WorkAt(run, now.uptime_us);
  run.stop_reason = desired.stop_reason;
  const bool saves = run.phase == Phase::kRunning && run.job->saves &&
                     desired.stop_reason != core::StopReason::kCancel &&
                     desired.stop_reason != core::StopReason::kNone;
  run.phase = Phase::kStopping;
  if (!saves) {
    Plan(now.uptime_us, EventKind::kStopped, id);
  } else if (run.job->checkpoint_write_us <= desired.stop_grace_us) {
    const int64_t written_us = now.uptime_us + run.job->checkpoint_write_us;
    Plan(written_us, EventKind::kCheckpointWritten, id, run.stopped_us);
    Plan(written_us, EventKind::kStopped, id);
  } else {
    Plan(now.uptime_us + desired.stop_grace_us, EventKind::kStopped, id);
  }
}

int64_t SimulatedPool::WorkStanding(int64_t uptime_us) const {
  int64_t sum = 0;
  for (const auto& [job, kept] : kept_us_) sum += kept;
  for (const auto& [id, run] : runs_) {
    const auto kept = kept_us_.find(id.job);
    sum += WorkAt(run, uptime_us) - (kept == kept_us_.end() ? 0 : kept->second);
  }
  return sum;
}

int64_t SimulatedPool::LostBy(JobId job) const {
  const auto found = lost_us_.find(job);
  return found == lost_us_.end() ? 0 : found->second;
}

}  // namespace trainyard::replay
