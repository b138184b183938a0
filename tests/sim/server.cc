// Simulates the scheduler around the turn loop: when a turn begins, how long its commit takes, and
// where the process dies in it.
#include "tests/sim/server.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "worker/agent/upload_target.h"

namespace trainyard::sim {
namespace {

// This is the value of Runtime::Options::retry_after_full_disk.
constexpr absl::Duration kFullDiskRest = absl::Seconds(1);

}  // namespace

Server::Server(World& world, const Options& options, Transport& transport, Disk& disk,
               HostClock clock)
    : world_(world), options_(options), transport_(transport), disk_(disk), clock_(clock) {}

core::Now Server::Now() const {
  return {clock_.Wall(world_.now()), clock_.Uptime(world_.now())};
}

void Server::Start() {
  if (is_up()) return;
  ++life_;
  up_since_ = world_.now();
  auto snapshot = disk_.Load();
  TY_CHECK_OK(snapshot.status());
  loop_ = std::make_unique<runtime::TurnLoop>(options_.config, kFullDiskRest, *std::move(snapshot),
                                              Now());
  transport_.SetServerUp(true);
  world_.Say("server", "starts at revision ", yard()->snapshot().revision);
  on_start();
  WakeAt(world_.now());
}

void Server::Crash(bool power) {
  if (is_up()) {
    world_.Say("server", power ? "loses power" : "is killed");
    // Data that was on its way to the disk may have arrived there.
    if (turn_ != nullptr && !turn_->delta.empty() && world_.random().Chance(500)) {
      (void)disk_.Commit(turn_->delta);
    }
  }
  ++life_;
  loop_.reset();
  queue_.clear();
  is_in_turn_ = false;
  turn_ = nullptr;
  wake_at_ = 0;
  crash_point_ = CrashPoint::kNone;
  transport_.SetServerUp(false);
  if (!power) return;
  disk_.LosePower();
  LoseLogs();
  clock_.boot = world_.now();
  clock_.uptime_at_boot = world_.random().Between(1, 100) * kSecond;
}

void Server::CrashAt(CrashPoint point, Time away) {
  crash_point_ = point;
  crash_away_ = away;
}

bool Server::DiesAt(CrashPoint point) {
  if (crash_point_ != point) return false;
  crash_point_ = CrashPoint::kNone;
  Crash(/*power=*/world_.random().Chance(300));
  world_.After(crash_away_, [this] { Start(); });
  return true;
}

void Server::Enqueue(runtime::TurnItem item) {
  queue_.push_back(std::move(item));
  WakeAt(world_.now() + world_.random().Below(kMillisecond));
}

void Server::Post(core::Input input, Answer<core::Reply> answer) {
  Enqueue(runtime::PostItem{std::move(input), std::move(answer)});
}

void Server::Sync(core::SyncReport report, Time max_wait, Answer<DesiredState> answer) {
  Enqueue(runtime::SyncItem{
      std::move(report), absl::Microseconds(max_wait),
      [this, answer = std::move(answer)](absl::StatusOr<runtime::DesiredState> desired) {
        if (desired.ok()) {
          answer(Describe(*std::move(desired)));
        } else {
          answer(desired.status());
        }
      }});
}

void Server::Register(core::RegisterWorker input, Answer<std::string> answer) {
  input.session = absl::StrCat("session-", life_, "-", ++sessions_);
  const std::string session = input.session;
  Post(std::move(input),
       [session, answer = std::move(answer)](const absl::StatusOr<core::Reply>& reply) {
         answer(reply.ok() ? absl::StatusOr<std::string>(session) : reply.status());
       });
}

// Files first, then the row that names them.
void Server::CommitCheckpoint(core::CommitCheckpoint input, Answer<core::Reply> answer) {
  Enqueue(runtime::ReadItem{[this, input = std::move(input),
                             answer = std::move(answer)](absl::StatusOr<const core::Yard*> yard) {
    const absl::Status allowed = yard.ok() ? (*yard)->CheckCheckpointWriter(
                                                 input.session, input.attempt, input.fencing_token)
                                           : yard.status();
    if (!allowed.ok()) {
      answer(allowed);
      return;
    }
    // The executor seals the files, unless a whole checkpoint of that step is on record.
    world_.After(world_.random().Between(kMillisecond, 200 * kMillisecond),
                 [this, life = life_, input, answer] {
                   if (life != life_) return;
                   const core::CheckpointRef id{input.attempt.job, input.step};
                   const core::CheckpointRecord* known = this->yard()->FindCheckpoint(id);
                   if (known == nullptr || !known->is_whole()) damaged_.erase(id);
                   Post(input, answer);
                 });
  }});
}

void Server::FetchCheckpoint(core::CheckpointRef id, Answer<bool> answer) {
  Enqueue(runtime::ReadItem{
      [this, id, answer = std::move(answer)](absl::StatusOr<const core::Yard*> yard) {
        if (!yard.ok()) {
          answer(yard.status());
        } else if ((*yard)->FindCheckpoint(id) == nullptr) {
          answer(error::CheckpointNotFound(CheckpointName(id.job, id.step)));
        } else if (damaged_.contains(id)) {
          answer(error::CorruptFile(CheckpointName(id.job, id.step), "its hash is wrong"));
        } else {
          answer(true);
        }
      }});
}

void Server::VerifyCheckpoint(core::CheckpointRef id, Answer<bool> answer) {
  Enqueue(runtime::ReadItem{[this, id,
                             answer = std::move(answer)](absl::StatusOr<const core::Yard*> yard) {
    if (!yard.ok()) return answer(yard.status());
    const core::CheckpointRecord* record = (*yard)->FindCheckpoint(id);
    if (record == nullptr) {
      return answer(error::CheckpointNotFound(CheckpointName(id.job, id.step)));
    }
    const core::JudgeCheckpoint found{*record, damaged_.contains(id) ? "its hash is wrong" : ""};
    // The executor hashes the files.
    world_.After(
        world_.random().Between(kMillisecond, 2 * kSecond), [this, life = life_, found, answer] {
          if (life != life_) return;
          Post(found, [found, answer](const absl::StatusOr<core::Reply>& reply) {
            answer(reply.ok() ? absl::StatusOr<bool>(found.damage.empty()) : reply.status());
          });
        });
  }});
}

void Server::DamageCheckpoint(core::CheckpointRef id) {
  world_.Say("faults", "the server's disk damages ", CheckpointName(id.job, id.step));
  damaged_.insert(id);
}

void Server::AppendLog(const LogChunk& chunk, Answer<int64_t> answer) {
  Enqueue(runtime::ReadItem{
      [this, chunk, answer = std::move(answer)](absl::StatusOr<const core::Yard*> yard) {
        absl::Status allowed = yard.status();
        if (yard.ok()) allowed = (*yard)->CheckStream(chunk.session, chunk.attempt, chunk.token);
        if (allowed.ok()) {
          answer(TakeChunk(chunk));
          return;
        }
        if (agent::IsRefusal(allowed)) logs_[{chunk.attempt, chunk.host}].is_excused = true;
        answer(allowed);
      }});
}

absl::StatusOr<int64_t> Server::TakeChunk(const LogChunk& chunk) {
  Log& log = logs_[{chunk.attempt, chunk.host}];
  if (chunk.offset != log.lines) return error::OffsetMismatch("log", chunk.offset, log.lines);
  log.lines += chunk.lines;
  return log.lines;
}

int64_t Server::LogLines(AttemptId attempt, int host) const {
  const auto log = logs_.find({attempt, host});
  if (log == logs_.end()) return 0;
  return log->second.is_excused ? std::numeric_limits<int64_t>::max() : log->second.lines;
}

// Logs are not synced: any of their last lines may be gone.
void Server::LoseLogs() {
  for (auto& [key, log] : logs_) {
    const int64_t kept = world_.random().Below(2) == 0 ? log.lines : log.lines / 2;
    log.is_excused = log.is_excused || kept < log.lines;
    log.lines = kept;
  }
}

void Server::WakeAt(Time when) {
  if (wake_at_ != 0 && wake_at_ <= when) return;
  wake_at_ = std::max(when, Time{1});
  world_.At(when, [this, life = life_, at = wake_at_] {
    if (life != life_ || at != wake_at_) return;
    wake_at_ = 0;
    if (!is_in_turn_) BeginTurn();
  });
}

void Server::SetTimer() {
  const std::optional<int64_t> next = loop_->NextDeadline();
  if (!queue_.empty()) WakeAt(world_.now());
  if (next.has_value()) WakeAt(clock_.WhenUptime(*next));
}

void Server::BeginTurn() {
  is_in_turn_ = true;
  const core::Now now = Now();
  std::vector<runtime::TurnItem> items;
  items.swap(queue_);
  turn_ = loop_->Take(std::move(items), now);
  if (turn_ != nullptr) {
    const auto next = yard()->NextDeadline();
    if (next.has_value() && *next <= now.uptime_us) {
      world_.Violate("the server rests", "after a turn something is still due at once");
    }
  }
  if (turn_ == nullptr || turn_->delta.empty()) {
    EndTurn();
    return;
  }
  if (DiesAt(CrashPoint::kBeforeCommit)) return;
  const Time takes = world_.random().Between(kMillisecond / 2, options_.commit_max);
  world_.After(takes, [this, life = life_] {
    if (life == life_ && !DiesAt(CrashPoint::kInCommit)) EndTurn();
  });
}

void Server::EndTurn() {
  const bool commits = turn_ != nullptr && !turn_->delta.empty();
  const std::vector<runtime::TurnLoop::Answer> answers = commits ? Commit() : loop_->Committed();
  is_in_turn_ = false;
  turn_ = nullptr;
  if (!is_up() || (commits && DiesAt(CrashPoint::kBeforeAnswers))) return;
  const int64_t life = life_;
  for (const runtime::TurnLoop::Answer& answer : answers) {
    answer();
    if (DiesAt(CrashPoint::kAmongAnswers) || life != life_) return;
  }
  SetTimer();
}

std::vector<runtime::TurnLoop::Answer> Server::Commit() {
  const absl::Status committed = disk_.Commit(turn_->delta);
  turn_ = nullptr;
  if (committed.ok()) return loop_->Committed();
  if (absl::IsResourceExhausted(committed)) {
    up_since_ = world_.now();
    auto snapshot = disk_.Load();
    TY_CHECK_OK(snapshot.status());
    return loop_->OutOfSpace(committed, *std::move(snapshot));
  }
  // The content of the disk is unknown, so only a new start reads it.
  world_.Say("server", "gives up: ", committed.message());
  Crash(/*power=*/false);
  world_.After(kSecond, [this] { Start(); });
  return {};
}

DesiredState Server::Describe(runtime::DesiredState desired) const {
  DesiredState state{desired.revision, std::move(desired.attempts), {}, {}};
  for (const core::DesiredAttempt& attempt : state.attempts) {
    if (attempt.action == core::DesiredAction::kRun) {
      state.submissions[attempt.attempt] = yard()->FindJob(attempt.attempt.job)->submission;
    }
    if (attempt.resume_from.has_value() &&
        yard()->FindCheckpoint(*attempt.resume_from) != nullptr) {
      state.resumable.insert(*attempt.resume_from);
    }
  }
  return state;
}

}  // namespace trainyard::sim
