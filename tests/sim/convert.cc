// Replaces the wire: messages are handed over in decoded form.
#include "tests/sim/convert.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace trainyard::sim {
namespace {

using agent::ReportedAttempt;

std::string StopReasonName(core::StopReason reason) {
  switch (reason) {
    case core::StopReason::kCancel:
      return "cancelled";
    case core::StopReason::kSuspend:
      return "suspended";
    case core::StopReason::kPreempt:
      return "preempted";
    case core::StopReason::kDrain:
      return "drained";
    case core::StopReason::kTimeLimit:
      return "time_limit";
    case core::StopReason::kResize:
      return "resized";
    default:
      return agent::kUnlistedReason;
  }
}

core::FailureClass ClassOf(run_dir::Outcome outcome) {
  switch (outcome) {
    case run_dir::Outcome::kUserError:
      return core::FailureClass::kUserError;
    case run_dir::Outcome::kHardware:
      return core::FailureClass::kHardware;
    case run_dir::Outcome::kTransient:
      return core::FailureClass::kTransient;
    default:
      return core::FailureClass::kNone;
  }
}

core::Outcome OutcomeOf(const run_dir::AttemptExit& exit) {
  core::Outcome outcome;
  switch (exit.outcome) {
    case run_dir::Outcome::kSucceeded:
      outcome.kind = core::OutcomeKind::kSucceeded;
      break;
    case run_dir::Outcome::kStopped:
      outcome.kind = core::OutcomeKind::kStopped;
      outcome.failure.reason = absl::AsciiStrToUpper(exit.reason);
      break;
    default:
      outcome.kind = core::OutcomeKind::kFailed;
      outcome.failure = {ClassOf(exit.outcome), exit.reason, exit.message};
      outcome.failed_rank = exit.failed_rank;
      break;
  }
  return outcome;
}

core::ObservedState StateOf(ReportedAttempt::State state) {
  switch (state) {
    case ReportedAttempt::State::kStarting:
      return core::ObservedState::kStarting;
    case ReportedAttempt::State::kRunning:
      return core::ObservedState::kRunning;
    case ReportedAttempt::State::kStopping:
      return core::ObservedState::kStopping;
    case ReportedAttempt::State::kExited:
      break;
  }
  return core::ObservedState::kExited;
}

agent::DesiredAttempt FromCore(const core::DesiredAttempt& desired, const DesiredState& state) {
  agent::DesiredAttempt attempt;
  attempt.fencing_token = desired.fencing_token;
  switch (desired.action) {
    case core::DesiredAction::kStop:
      attempt.action = agent::DesiredAttempt::Action::kStop;
      attempt.stop = {StopReasonName(desired.stop_reason),
                      absl::Microseconds(desired.stop_grace_us)};
      return attempt;
    case core::DesiredAction::kRemove:
      attempt.action = agent::DesiredAttempt::Action::kRemove;
      return attempt;
    case core::DesiredAction::kRun:
      break;
  }
  attempt.action = agent::DesiredAttempt::Action::kRun;
  attempt.spec_json = state.submissions.at(desired.attempt)->spec;
  attempt.keep = absl::Microseconds(state.submissions.at(desired.attempt)->disconnect_keep_us);
  attempt.world_size = desired.world_size;
  // Only programs run without a device.
  attempt.runs_program = !desired.ranks.empty() && desired.ranks.front().device.empty();
  for (const core::RankPlacement& rank : desired.ranks) {
    attempt.ranks.push_back({rank.rank, rank.device, rank.held.cpus, rank.held.memory_bytes});
  }
  if (desired.resume_from.has_value() && state.resumable.contains(*desired.resume_from)) {
    agent::ResumeSource& source = attempt.resume_from.emplace();
    source.name = CheckpointName(desired.resume_from->job, desired.resume_from->step);
    source.step = desired.resume_from->step;
  }
  attempt.rendezvous = desired.rendezvous;
  attempt.spans_workers = desired.spans_workers;
  attempt.checkpoint_request = desired.checkpoint_request;
  attempt.failures = desired.failures;
  attempt.run_time = absl::Microseconds(desired.run_time_us);
  return attempt;
}

core::ObservedAttempt Observed(const ReportedAttempt& attempt) {
  core::ObservedAttempt seen;
  seen.attempt = attempt.id;
  seen.fencing_token = attempt.fencing_token;
  seen.state = StateOf(attempt.state);
  if (attempt.progress.has_value()) {
    core::Progress progress;
    progress.step = attempt.progress->step;
    if (attempt.progress->samples_per_s > 1e-9 &&
        attempt.state == ReportedAttempt::State::kRunning) {
      const double left = static_cast<double>(
          std::max<int64_t>(0, attempt.progress->total_steps - attempt.progress->step));
      progress.eta_us =
          static_cast<int64_t>(std::min(left / attempt.progress->samples_per_s, 3.1e9) * 1e6);
    }
    seen.progress = progress;
  }
  if (attempt.exit.has_value()) seen.outcome = OutcomeOf(*attempt.exit);
  seen.rendezvous = attempt.rendezvous;
  seen.drained = attempt.drained;
  return seen;
}

}  // namespace

agent::Desired ToAgent(const DesiredState& state) {
  agent::Desired desired;
  desired.revision = state.revision;
  for (const core::DesiredAttempt& attempt : state.attempts) {
    desired.attempts[attempt.attempt] = FromCore(attempt, state);
  }
  return desired;
}

core::SyncReport ToCore(const agent::LinkCore::Sync& sync) {
  core::SyncReport report;
  report.session = sync.session;
  report.sequence = sync.sequence;
  report.desired_revision = sync.desired_revision;
  report.answers_heard = sync.answers_heard;
  for (const ReportedAttempt& attempt : sync.report.attempts) {
    report.attempts.push_back(Observed(attempt));
  }
  report.devices = ToCore(sync.report.changed_devices);
  report.leave_within_us = absl::ToInt64Microseconds(sync.report.leave_within);
  return report;
}

std::vector<core::DeviceRecord> ToCore(const std::vector<agent::Device>& devices) {
  std::vector<core::DeviceRecord> records;
  for (const agent::Device& device : devices) {
    core::DeviceRecord record;
    record.name = device.name;
    record.type = device.type;
    record.bf16 = device.bf16;
    record.health = device.health == agent::Device::Health::kOk ? core::DeviceHealth::kOk
                                                                : core::DeviceHealth::kUnmanagedUse;
    record.health_reason = device.health_reason;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace trainyard::sim
