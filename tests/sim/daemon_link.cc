// The daemon's calls: the session (worker/agent/scheduler_link.cc), the fetcher and the uploaders.
// What the wire would carry is handed over as it is decoded (worker/agent/convert.cc,
// server/rpc/convert_agent.cc).
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/sim/daemon.h"

namespace trainyard::sim {
namespace {

using agent::ReportedAttempt;

constexpr Time kBackoffFirst = 50 * kMillisecond;
constexpr Time kBackoffLast = 3 * kSecond;
constexpr Time kCallTimeout = 10 * kSecond;
constexpr Time kUploadTimeout = 60 * kSecond;
constexpr Time kUploadPause = 5 * kSecond;

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
  attempt.keep = absl::Microseconds(state.submissions.at(desired.attempt)->disconnect_keep_us);
  attempt.world_size = desired.world_size;
  for (const core::RankPlacement& rank : desired.ranks) {
    attempt.ranks.push_back({rank.rank, rank.device});
  }
  if (desired.resume_from.has_value() && state.resumable.contains(*desired.resume_from)) {
    agent::ResumeSource& source = attempt.resume_from.emplace();
    source.name = CheckpointName(desired.resume_from->job, desired.resume_from->step);
    source.step = desired.resume_from->step;
  }
  attempt.rendezvous = desired.rendezvous;
  attempt.spans_workers = desired.spans_workers;
  attempt.checkpoint_request = desired.checkpoint_request;
  return attempt;
}

// As IsRefusal of worker/agent/upload_target.cc.
bool IsRefusal(const absl::Status& status) {
  if (ErrorReason(status) == "UNKNOWN_SESSION") return false;
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::vector<core::DeviceRecord> Daemon::Devices() const {
  std::vector<core::DeviceRecord> records;
  for (const HostDevice& device : host_.devices) {
    if (device.is_gone) continue;
    core::DeviceRecord record;
    record.name = device.name;
    record.type = device.type;
    if (device.is_foreign) record.health = core::DeviceHealth::kUnmanagedUse;
    records.push_back(std::move(record));
  }
  return records;
}

void Daemon::SetReport(agent::Report report, bool urgent) {
  report_ = std::move(report);
  // An answer that has come already is taken first.
  if (urgent && call_ != nullptr && !call_->ended() && !session_.empty()) {
    call_->Cancel();
    call_.reset();
  }
  Pump();
}

// One call at a time; after an answer, the next waits for a report that has acted upon it.
void Daemon::Pump() {
  if (call_ != nullptr || is_pausing_ || !report_.has_value()) return;
  if (report_->desired_serial < answered_serial_) return;
  if (session_.empty()) {
    Register();
  } else {
    Sync();
  }
}

void Daemon::Failed(const absl::Status& status, const std::string& session) {
  const bool is_unknown = ErrorReason(status) == "UNKNOWN_SESSION";
  if (is_unknown && session_ == session) session_.clear();
  if (is_unknown && !session.empty()) {
    Pump();
    return;
  }
  backoff_ = backoff_ == 0 ? kBackoffFirst : std::min(2 * backoff_, kBackoffLast);
  is_pausing_ = true;
  After(world_.random().Between(backoff_ / 2, backoff_), [this] {
    is_pausing_ = false;
    Pump();
  });
}

void Daemon::Register() {
  core::RegisterWorker input;
  input.worker = host_.name;
  input.uid = absl::StrCat("uid of ", host_.name);
  input.version = "1";
  input.hostname = host_.name;
  input.devices = Devices();
  call_ = transport_.Call<std::string>(
      host_.number, kCallTimeout,
      [this, input](Server::Answer<std::string> answer) { server_.Register(input, answer); },
      GuardAnswer<std::string>([this](absl::StatusOr<std::string> session) {
        call_.reset();
        if (!session.ok()) {
          Failed(session.status(), "");
          return;
        }
        session_ = *session;
        sent_.reset();
        sequence_ = 0;
        heard_ = false;
        backoff_ = 0;
        world_.Say(host_.name, "is registered");
        Pump();
      }));
}

core::SyncReport Daemon::MakeReport() const {
  core::SyncReport report;
  report.session = session_;
  report.sequence = sequence_;
  report.desired_revision = heard_ ? report_->desired_revision : 0;
  for (const ReportedAttempt& attempt : sent_->attempts) {
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
    report.attempts.push_back(std::move(seen));
  }
  for (const agent::Device& device : sent_->changed_devices) {
    core::DeviceRecord record;
    record.name = device.name;
    record.type = device.type;
    record.health = device.health == agent::Device::Health::kOk ? core::DeviceHealth::kOk
                                                                : core::DeviceHealth::kUnmanagedUse;
    record.health_reason = device.health_reason;
    report.devices.push_back(std::move(record));
  }
  return report;
}

void Daemon::Sync() {
  if (!sent_.has_value() || *sent_ != *report_) {
    sent_ = *report_;
    ++sequence_;
  }
  const core::SyncReport report = MakeReport();
  const bool something_runs = std::any_of(
      report.attempts.begin(), report.attempts.end(),
      [](const auto& attempt) { return attempt.state != core::ObservedState::kExited; });
  const Time interval = options_.config.sync_interval_us;
  const Time wait = something_runs ? std::min(interval, options_.report_interval) : interval;
  const absl::Duration sent_at = host_.Uptime();
  call_ = transport_.Call<DesiredState>(
      host_.number, kCallTimeout + interval,
      [this, report, wait](Server::Answer<DesiredState> answer) {
        server_.Sync(report, wait, answer);
      },
      GuardAnswer<DesiredState>(
          [this, sent_at, session = session_](absl::StatusOr<DesiredState> state) {
            call_.reset();
            if (!state.ok()) {
              Failed(state.status(), session);
              return;
            }
            backoff_ = 0;
            TakeAnswer(*state, sent_at);
          }));
}

void Daemon::TakeAnswer(const DesiredState& state, absl::Duration sent_at) {
  agent::Desired desired;
  desired.revision = state.revision;
  desired.lease_expire_uptime = sent_at + absl::Microseconds(options_.config.lease_us);
  desired.serial = ++serial_;
  answered_serial_ = serial_;
  heard_ = true;
  for (const core::DesiredAttempt& attempt : state.attempts) {
    desired.attempts[attempt.attempt] = FromCore(attempt, state);
    if (attempt.action == core::DesiredAction::kRun) {
      submissions_[attempt.attempt] = state.submissions.at(attempt.attempt);
    }
  }
  inbox_ = std::move(desired);
  // A look is due: progress has gone on, though no file event tells of it here.
  Wake();
}

// Checkpoints from the server.
void Daemon::Fetch(AttemptId id, core::CheckpointRef ref) {
  transport_.Call<bool>(
      host_.number, kUploadTimeout,
      [this, ref](Server::Answer<bool> answer) { server_.FetchCheckpoint(ref, answer); },
      GuardAnswer<bool>([this, id, ref](absl::StatusOr<bool> found) {
        const auto attempt = attempts_.find(id);
        if (attempt == attempts_.end() || attempt->second.local.phase != agent::Phase::kPreparing) {
          return;
        }
        const bool again =
            absl::IsUnavailable(found.status()) || absl::IsDeadlineExceeded(found.status());
        After(world_.random().Between(100 * kMillisecond, 5 * kSecond),
              [this, id, ref, again, found] {
                const auto waiting = attempts_.find(id);
                if (waiting == attempts_.end() ||
                    waiting->second.local.phase != agent::Phase::kPreparing) {
                  return;
                }
                if (again) {
                  Fetch(id, ref);
                  return;
                }
                waiting->second.fetched = found.status();
                Wake();
              });
      }));
}

// Checkpoints and streams to the server: one thing at a time, oldest first.
void Daemon::Upload() {
  if (is_uploading_ || session_.empty()) return;
  for (auto& [id, attempt] : attempts_) {
    if (!attempt.has_directory || attempt.local.phase == agent::Phase::kPreparing) continue;
    const RunDirectory* dir = host_.FindDirectory(id);
    if (dir == nullptr || !dir->is_assigned) {
      attempt.checkpoints_done = attempt.streams_done = attempt.exit.has_value();
      continue;
    }
    for (const int64_t step : dir->checkpoints) {
      if (attempt.committed.contains(step) || attempt.given_up.contains(step)) continue;
      is_uploading_ = true;
      core::CommitCheckpoint commit{session_, id, dir->fencing_token, step, {}};
      commit.files.push_back({"state", 1000, absl::StrCat("hash-", id.number, "-", step)});
      // Ups and downs of a curve, out of step with the numbers.
      const int64_t height = (id.job.value * 31 + step * 7) % 13;
      commit.evaluation = {static_cast<double>(height), static_cast<double>(13 - height) / 13};
      const Time takes = world_.random().Around(trainers_.script(dir->script).upload_time);
      After(takes, [this, id, step, commit] {
        transport_.Call<core::Reply>(
            host_.number, kUploadTimeout,
            [this, commit](Server::Answer<core::Reply> answer) {
              server_.CommitCheckpoint(commit, answer);
            },
            GuardAnswer<core::Reply>([this, id, step, commit](absl::StatusOr<core::Reply> reply) {
              is_uploading_ = false;
              const auto target = attempts_.find(id);
              if (target == attempts_.end()) {
                Upload();
              } else if (reply.ok()) {
                target->second.committed.insert(step);
                upload_backoff_ = 0;
                Wake();
              } else if (IsRefusal(reply.status())) {
                target->second.given_up.insert(step);
                Wake();
              } else {
                UploadFailed(reply.status(), commit.session);
              }
            }));
      });
      return;
    }
    if (!attempt.exit.has_value()) continue;
    if (!attempt.checkpoints_done) {
      attempt.checkpoints_done = true;
      Wake();
    }
    if (attempt.streams_done) continue;
    is_uploading_ = true;
    transport_.Call<bool>(
        host_.number, kCallTimeout,
        [this, id = id, session = session_, token = dir->fencing_token](
            Server::Answer<bool> answer) { server_.EndStreams(session, id, token, answer); },
        GuardAnswer<bool>([this, id = id, session = session_](absl::StatusOr<bool> reply) {
          is_uploading_ = false;
          const auto target = attempts_.find(id);
          if (target != attempts_.end() && (reply.ok() || IsRefusal(reply.status()))) {
            target->second.streams_done = true;
            Wake();
          } else if (!reply.ok()) {
            UploadFailed(reply.status(), session);
          }
        }));
    return;
  }
}

void Daemon::UploadFailed(const absl::Status& status, const std::string& session) {
  if (ErrorReason(status) == "UNKNOWN_SESSION" && session_ == session) session_.clear();
  upload_backoff_ = std::clamp(2 * upload_backoff_, 100 * kMillisecond, kUploadPause);
  is_uploading_ = true;
  After(upload_backoff_, [this] {
    is_uploading_ = false;
    Wake();
  });
}

}  // namespace trainyard::sim
