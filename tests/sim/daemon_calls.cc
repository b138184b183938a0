// Makes the daemon's calls: its link to the server, its fetches and its uploads. The cores decide
// which call comes next.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/sim/convert.h"
#include "tests/sim/daemon.h"

namespace trainyard::sim {
namespace {

constexpr Time kCallTimeout = 20 * kSecond;
constexpr Time kUploadTimeout = 60 * kSecond;
constexpr Time kLogPause = kSecond;
// The number of lines of a log in one call, and the number that is worth a call before the end.
constexpr int64_t kLinesPerCall = 100;

}  // namespace

// The link.

void Daemon::Pump() {
  if (process_->call != nullptr || process_->is_pausing) return;
  std::visit([this](const auto& due) { Do(due); }, process_->link.Next());
}

void Daemon::Do(const agent::LinkCore::Pause& pause) {
  process_->is_pausing = true;
  After(absl::ToInt64Microseconds(pause.length), [this] {
    process_->is_pausing = false;
    Pump();
  });
}

void Daemon::Do(const agent::LinkCore::Register& due) {
  core::RegisterWorker input;
  input.worker = machine_.name;
  input.uid = absl::StrCat("uid of ", machine_.name);
  input.version = "1";
  input.hostname = machine_.name;
  input.devices = ToCore(due.devices);
  input.host = machine_.resources;
  process_->is_sync = false;
  process_->call = transport_.Call<std::string>(
      machine_.number, absl::ToInt64Microseconds(due.timeout),
      [this, input](Server::Answer<std::string> answer) {
        server_.Register(input, std::move(answer));
      },
      GuardAnswer<std::string>([this](absl::StatusOr<std::string> session) {
        process_->call.reset();
        if (session.ok()) {
          last_heard_ = world_.now();
          process_->link.Registered(*session, absl::Microseconds(options_.config.lease_us),
                                    absl::Microseconds(options_.config.sync_interval_us));
          world_.Say(machine_.name, "is registered");
          PumpCheckpoints();
          PumpLogs();
        } else {
          process_->link.Failed(session.status(), "");
        }
        Pump();
      }));
}

void Daemon::Do(const agent::LinkCore::Sync& due) {
  const core::SyncReport report = ToCore(due);
  const bool leaves = report.leave_within_us > 0;
  const Time wait = absl::ToInt64Microseconds(due.max_wait);
  const absl::Duration sent_at = machine_.Uptime();
  process_->is_sync = true;
  process_->call = transport_.Call<DesiredState>(
      machine_.number, absl::ToInt64Microseconds(due.timeout),
      [this, report, wait](Server::Answer<DesiredState> answer) {
        server_.Sync(report, wait, std::move(answer));
      },
      GuardAnswer<DesiredState>(
          [this, sent_at, leaves, session = due.session](absl::StatusOr<DesiredState> state) {
            process_->call.reset();
            if (state.ok()) {
              last_heard_ = world_.now();
              process_->server_knows = leaves;
              process_->gets_nothing_more = leaves && state->attempts.empty();
              process_->core.Wants(process_->link.Answered(ToAgent(*state), sent_at));
              // A look is due: there may be progress, which no file event reports here.
              Wake();
            } else {
              process_->link.Failed(state.status(), session);
            }
            Pump();
          }));
}

// Checkpoints from the server.

void Daemon::Fetch(AttemptId id) {
  const core::CheckpointRef ref = {ParseCheckpointName(process_->fetches.at(id).name)->job,
                                   process_->fetches.at(id).step};
  transport_.Call<bool>(
      machine_.number, kUploadTimeout,
      [this, ref](Server::Answer<bool> answer) { server_.FetchCheckpoint(ref, std::move(answer)); },
      GuardAnswer<bool>([this, id](const absl::StatusOr<bool>& found) {
        After(world_.random().Between(100 * kMillisecond, 5 * kSecond),
              [this, id, status = found.status()] { EndFetch(id, status); });
      }));
}

void Daemon::AskAboutDamage(AttemptId id, const absl::Status& seen) {
  const std::string name = process_->fetches.at(id).name;
  const core::CheckpointRef ref = {ParseCheckpointName(name)->job, process_->fetches.at(id).step};
  transport_.Call<bool>(
      machine_.number, kUploadTimeout,
      [this, ref](Server::Answer<bool> answer) {
        server_.VerifyCheckpoint(ref, std::move(answer));
      },
      GuardAnswer<bool>([this, id, name, seen](const absl::StatusOr<bool>& is_whole) {
        if (!is_whole.ok()) return EndFetch(id, is_whole.status());
        EndFetch(id, *is_whole ? seen : error::CheckpointDamaged(name, "its hash is wrong", ""));
      }));
}

void Daemon::EndFetch(AttemptId id, const absl::Status& status) {
  if (!process_->fetches.contains(id)) return;
  if (ErrorReason(status) == "CORRUPT_FILE") {
    AskAboutDamage(id, status);
    return;
  }
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    Fetch(id);
    return;
  }
  process_->fetches.erase(id);
  process_->core.Fetched(id, status);
  Wake();
}

// Checkpoints to the server.

void Daemon::PumpCheckpoints() {
  if (process_->is_sending_checkpoint || process_->session.Get().empty()) return;
  const auto upload = process_->checkpoints.Next();
  if (upload.has_value()) SendCheckpoint(*upload);
}

void Daemon::SendCheckpoint(const agent::CheckpointQueue::Upload& upload) {
  const AttemptId id = upload.target.id;
  const int64_t step = upload.step;
  const RunDirectory* dir = machine_.FindDirectory(id);
  const size_t script = dir == nullptr ? 0 : dir->script;
  core::CommitCheckpoint commit{process_->session.Get(), id, upload.target.fencing_token, step, {}};
  commit.files.push_back({"state", 1000, absl::StrCat("hash-", id.number, "-", step)});
  // The curve goes up and down, so the best checkpoint is often not the newest.
  const int64_t height = (id.job.value * 31 + step * 7) % 13;
  commit.evaluation = {static_cast<double>(height), static_cast<double>(13 - height) / 13};
  process_->is_sending_checkpoint = true;
  const auto ended = [this, id, step,
                      session = commit.session](const absl::StatusOr<core::Reply>& reply) {
    if (ErrorReason(reply.status()) == "UNKNOWN_SESSION") process_->session.Forget(session);
    const auto pause = process_->checkpoints.Ended(id, step, reply.status());
    After(pause.has_value() ? absl::ToInt64Microseconds(*pause) : 1, [this] {
      process_->is_sending_checkpoint = false;
      PumpCheckpoints();
      Wake();
    });
  };
  After(world_.random().Around(trainers_.script(script).upload_time), [this, commit, ended] {
    transport_.Call<core::Reply>(
        machine_.number, kUploadTimeout,
        [this, commit](Server::Answer<core::Reply> answer) {
          server_.CommitCheckpoint(commit, std::move(answer));
        },
        GuardAnswer<core::Reply>(ended));
  });
}

// Logs to the server.

void Daemon::PumpLogs() {
  if (process_->is_sending_log || process_->session.Get().empty()) return;
  for (const agent::UploadTarget& target : process_->targets) {
    if (process_->logs_done.contains(target.id)) continue;
    if (SendLog(target)) return;
    if (!target.exited) continue;
    process_->logs_done.insert(target.id);
    Wake();
  }
}

bool Daemon::SendLog(const agent::UploadTarget& target) {
  const AttemptId id = target.id;
  agent::StreamCursor& cursor = process_->logs[id];
  const RunDirectory* dir = machine_.FindDirectory(id);
  if (dir == nullptr || cursor.is_closed()) return false;
  const int64_t left = dir->LogLines(world_.now()) - cursor.offset();
  if (left <= 0 || (!target.exited && left < kLinesPerCall)) return false;
  const int64_t lines = cursor.is_known() ? std::min(left, kLinesPerCall) : 0;
  process_->is_sending_log = true;
  const Server::LogChunk chunk = {
      process_->session.Get(), id, target.fencing_token, machine_.number, cursor.offset(), lines};
  transport_.Call<int64_t>(
      machine_.number, kCallTimeout,
      [this, chunk](Server::Answer<int64_t> answer) {
        server_.AppendLog(chunk, std::move(answer));
      },
      GuardAnswer<int64_t>(
          [this, id, session = chunk.session](const absl::StatusOr<int64_t>& next) {
            LogAnswered(id, session, next);
          }));
  return true;
}

void Daemon::LogAnswered(AttemptId id, const std::string& session,
                         const absl::StatusOr<int64_t>& next) {
  agent::StreamCursor& cursor = process_->logs[id];
  if (ErrorReason(next.status()) == "UNKNOWN_SESSION") process_->session.Forget(session);
  const auto advance = next.ok() ? cursor.Acknowledged(*next) : cursor.Failed(next.status());
  // Once the attempt has exited, the state of a stream that is at its end is final.
  for (const agent::UploadTarget& target : process_->targets) {
    if (target.id != id || !target.exited || advance != agent::StreamCursor::Next::kAtEnd) continue;
    process_->logs_done.insert(id);
    Wake();
  }
  const bool is_failed = advance == agent::StreamCursor::Next::kFailed;
  After(is_failed ? kLogPause : 1, [this] {
    process_->is_sending_log = false;
    PumpLogs();
  });
}

// An attempt that is drained has all of its log on the server, unless that did not want it or lost
// it with its power.
void Daemon::Removed(const RunDirectory& dir) {
  process_->logs.erase(dir.id);
  process_->logs_done.erase(dir.id);
  const int64_t written = dir.LogLines(world_.now());
  const int64_t kept = server_.LogLines(dir.id, machine_.number);
  if (kept >= written) return;
  world_.Violate("no line of a log is lost",
                 absl::StrCat(AttemptName(dir.id), " wrote ", written, " lines on ", machine_.name,
                              "; the server has ", kept));
}

}  // namespace trainyard::sim
