#include "tests/sim/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/planted_bug.h"

namespace trainyard::sim {
namespace {

constexpr Time kFullDiskPause = kSecond;  // Runtime::Options::retry_after_full_disk

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
  yard_ = std::make_unique<core::Yard>(options_.config, *std::move(snapshot), Now());
  settle_after_us_ = 0;
  transport_.SetServerUp(true);
  world_.Say("server", "starts at revision ", yard_->snapshot().revision);
  on_start();
  WakeAt(world_.now());
}

void Server::Crash(bool power) {
  if (is_up()) {
    world_.Say("server", power ? "loses power" : "is killed");
    // What was on its way to the disk may have got there.
    if (open_.has_value() && !open_->turn.delta.empty() && world_.random().Chance(500)) {
      (void)disk_.Commit(open_->turn.delta);
    }
  }
  ++life_;
  yard_.reset();
  queue_.clear();
  waiting_.clear();
  open_.reset();
  wake_at_ = 0;
  crash_point_ = CrashPoint::kNone;
  transport_.SetServerUp(false);
  if (!power) return;
  disk_.LosePower();
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

void Server::Enqueue(Item item) {
  queue_.push_back(std::move(item));
  WakeAt(world_.now() + world_.random().Below(kMillisecond));
}

void Server::Post(core::Input input, Answer<core::Reply> answer) {
  Enqueue(PostItem{std::move(input), std::move(answer)});
}

void Server::Sync(core::SyncReport report, Time max_wait, Answer<DesiredState> answer) {
  Enqueue(SyncItem{std::move(report), max_wait, std::move(answer)});
}

void Server::Read(ReadDone done) {
  Enqueue(ReadItem{std::move(done)});
}

void Server::Register(core::RegisterWorker input, Answer<std::string> answer) {
  input.session = absl::StrCat("session-", life_, "-", ++sessions_);
  const std::string session = input.session;
  Post(std::move(input), [session, answer](absl::StatusOr<core::Reply> reply) {
    answer(reply.ok() ? absl::StatusOr<std::string>(session) : reply.status());
  });
}

// Files first, then the row that names them.
void Server::CommitCheckpoint(core::CommitCheckpoint input, Answer<core::Reply> answer) {
  Read([this, input, answer](absl::StatusOr<const core::Yard*> yard) {
    const absl::Status allowed = yard.ok() ? (*yard)->CheckCheckpointWriter(
                                                 input.session, input.attempt, input.fencing_token)
                                           : yard.status();
    if (!allowed.ok()) {
      answer(allowed);
      return;
    }
    // The executor seals the files.
    world_.After(world_.random().Between(kMillisecond, 200 * kMillisecond),
                 [this, life = life_, input, answer] {
                   if (life == life_) Post(input, answer);
                 });
  });
}

void Server::FetchCheckpoint(core::CheckpointRef id, Answer<bool> answer) {
  Read([id, answer](absl::StatusOr<const core::Yard*> yard) {
    if (!yard.ok()) {
      answer(yard.status());
    } else if ((*yard)->FindCheckpoint(id) == nullptr) {
      answer(error::CheckpointNotFound(CheckpointName(id.job, id.step)));
    } else {
      answer(true);
    }
  });
}

void Server::EndStreams(const std::string& session, AttemptId attempt, int64_t token,
                        Answer<bool> answer) {
  Read([session, attempt, token, answer](absl::StatusOr<const core::Yard*> yard) {
    const absl::Status allowed =
        yard.ok() ? (*yard)->CheckStream(session, attempt, token) : yard.status();
    answer(allowed.ok() ? absl::StatusOr<bool>(true) : allowed);
  });
}

// The loop.

void Server::WakeAt(Time when) {
  if (wake_at_ != 0 && wake_at_ <= when) return;
  wake_at_ = std::max(when, Time{1});
  world_.At(when, [this, life = life_, at = wake_at_] {
    if (life != life_ || at != wake_at_) return;
    wake_at_ = 0;
    if (!open_.has_value()) BeginTurn();
  });
}

void Server::SetTimer() {
  std::optional<int64_t> next = yard_->NextDeadline();
  if (next.has_value()) next = std::max(*next, settle_after_us_);
  for (const auto& [worker, waiting] : waiting_) {
    next = std::min(next.value_or(waiting.deadline_us), waiting.deadline_us);
  }
  if (!queue_.empty()) WakeAt(world_.now());
  if (next.has_value()) WakeAt(clock_.WhenUptime(*next));
}

void Server::BeginTurn() {
  OpenTurn& open = open_.emplace();
  open.now = Now();
  const core::Now now = open.now;
  std::vector<Item> items;
  items.swap(queue_);
  for (Item& item : items) {
    if (auto* post = std::get_if<PostItem>(&item)) {
      auto reply = yard_->Apply(post->input, now);
      open.applied.emplace_back(std::move(post->done), std::move(reply));
    } else if (auto* sync = std::get_if<SyncItem>(&item)) {
      absl::Status status = yard_->Apply(core::Input(sync->report), now).status();
      open.syncs.emplace_back(std::move(*sync), std::move(status));
    } else {
      open.reads.push_back(std::move(std::get<ReadItem>(item).done));
    }
  }
  const auto deadline = yard_->NextDeadline();
  const bool timer_is_due = deadline.has_value() && *deadline <= now.uptime_us;
  if (!open.applied.empty() || !open.syncs.empty() ||
      (timer_is_due && settle_after_us_ <= now.uptime_us)) {
    open.turn = yard_->Settle(now);
    const auto next = yard_->NextDeadline();
    if (next.has_value() && *next <= now.uptime_us) {
      world_.Violate("the server rests", "after a turn something is still due at once");
    }
  }
  if (open.turn.delta.empty()) {
    EndTurn();
    return;
  }
  if (DiesAt(CrashPoint::kBeforeCommit)) return;
  if (TY_BUG(acknowledge_before_commit)) {
    for (auto& [done, reply] : open.applied) done(std::move(reply));
    open.applied.clear();
  }
  const Time takes = world_.random().Between(kMillisecond / 2, options_.commit_max);
  world_.After(takes, [this, life = life_] {
    if (life == life_ && !DiesAt(CrashPoint::kInCommit)) EndTurn();
  });
}

void Server::EndTurn() {
  OpenTurn turn = *std::move(open_);
  open_.reset();
  absl::Status committed;
  if (!turn.turn.delta.empty()) {
    committed = Commit(turn.turn, turn.now);
    if (!is_up() || DiesAt(CrashPoint::kBeforeAnswers)) return;
  }
  const int64_t life = life_;
  AnswerAll(std::move(turn), committed);
  if (life == life_) SetTimer();
}

absl::Status Server::Commit(const core::Turn& turn, core::Now now) {
  absl::Status committed = disk_.Commit(turn.delta);
  if (committed.ok()) return committed;
  if (absl::IsResourceExhausted(committed)) {
    up_since_ = world_.now();
    // As if nothing had been asked. Sessions are gone with the old yard.
    settle_after_us_ = now.uptime_us + kFullDiskPause;
    auto snapshot = disk_.Load();
    TY_CHECK_OK(snapshot.status());
    *yard_ = core::Yard(options_.config, *std::move(snapshot), now);
    while (!waiting_.empty()) AnswerWaiting(std::string(waiting_.begin()->first));
    return committed;
  }
  // What is on the disk is unknown: only a new start reads it.
  world_.Say("server", "gives up: ", committed.message());
  Crash(/*power=*/false);
  world_.After(kSecond, [this] { Start(); });
  return committed;
}

void Server::AnswerAll(OpenTurn turn, const absl::Status& committed) {
  const int64_t life = life_;
  for (auto& [done, reply] : turn.applied) {
    // A refusal of the yard stands whatever became of the commit.
    const bool is_lost = reply.ok() && !committed.ok();
    done(is_lost ? absl::StatusOr<core::Reply>(committed) : std::move(reply));
    if (DiesAt(CrashPoint::kAmongAnswers) || life != life_) return;
  }
  for (auto& [sync, status] : turn.syncs) {
    if (!status.ok()) {
      sync.done(status);
    } else if (!committed.ok()) {
      sync.done(committed);
    } else {
      AcceptSync(std::move(sync), turn.now);
    }
  }
  if (committed.ok()) AnswerWaiting(turn.turn, turn.now);
  for (ReadDone& read : turn.reads) {
    if (committed.ok()) {
      read(yard_.get());
    } else {
      read(committed);
    }
  }
}

void Server::AcceptSync(SyncItem item, core::Now now) {
  const auto worker = yard_->WorkerOfSession(item.report.session);
  if (!worker.ok()) {
    item.done(worker.status());
    return;
  }
  AnswerWaiting(*worker);
  const bool has_news = item.report.desired_revision == 0 ||
                        item.report.desired_revision != yard_->DesiredRevision(*worker);
  if (has_news || item.max_wait <= 0) {
    AnswerSync(*worker, item.report.session, item.done);
    return;
  }
  waiting_[*worker] = {item.report.session, item.report.desired_revision,
                       now.uptime_us + item.max_wait, std::move(item.done)};
}

// Those who have something new to do, whose session has ended, or whose time is over.
void Server::AnswerWaiting(const core::Turn& turn, core::Now now) {
  for (const std::string& worker : turn.desired_changed) AnswerWaiting(worker);
  for (const core::WorkerRecord& worker : turn.delta.workers) {
    const auto waiting = waiting_.find(worker.name);
    if (waiting == waiting_.end() || yard_->WorkerOfSession(waiting->second.session).ok()) continue;
    AnswerWaiting(worker.name);
  }
  std::vector<std::string> due;
  for (const auto& [worker, waiting] : waiting_) {
    if (waiting.deadline_us <= now.uptime_us) due.push_back(worker);
  }
  for (const std::string& worker : due) AnswerWaiting(worker);
}

void Server::AnswerWaiting(const std::string& worker) {
  const auto found = waiting_.find(worker);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  AnswerSync(worker, waiting.session, waiting.done);
}

void Server::AnswerSync(const std::string& worker, const std::string& session,
                        const Answer<DesiredState>& done) {
  const auto owner = yard_->WorkerOfSession(session);
  if (!owner.ok()) {
    done(owner.status());
    return;
  }
  DesiredState state{yard_->DesiredRevision(worker), yard_->DesiredFor(worker), {}, {}};
  for (const core::DesiredAttempt& attempt : state.attempts) {
    if (attempt.action == core::DesiredAction::kRun) {
      state.submissions[attempt.attempt] = yard_->FindJob(attempt.attempt.job)->submission;
    }
    if (attempt.resume_from.has_value() && yard_->FindCheckpoint(*attempt.resume_from) != nullptr) {
      state.resumable.insert(*attempt.resume_from);
    }
  }
  done(std::move(state));
}

}  // namespace trainyard::sim
