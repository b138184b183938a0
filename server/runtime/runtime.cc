// Implements the thread and the queue. This file decides which inputs make a turn, and when it is
// due; the turn loop decides what a turn does.
#include "server/runtime/runtime.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/runtime/executor.h"

namespace trainyard::runtime {
namespace {

// The longest sleep of the writer if no timer is set.
constexpr absl::Duration kIdleWait = absl::Minutes(1);

absl::Status ShuttingDown() {
  return absl::UnavailableError("the server is shutting down; try again");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Start(Options options, store::Store& store,
                                                        Clock& clock, Board& board) {
  TY_CHECK(options.on_fatal != nullptr);
  TY_ASSIGN_OR_RETURN(core::Snapshot snapshot, store.Load());
  TY_RETURN_IF_ERROR(options.on_load(snapshot));
  std::unique_ptr<Runtime> runtime(
      new Runtime(std::move(options), store, clock, board, std::move(snapshot)));
  board.Load(runtime->loop_.yard());
  runtime->thread_ = std::thread([&writer = *runtime] { writer.Loop(); });
  return runtime;
}

Runtime::Runtime(Options options, store::Store& store, Clock& clock, Board& board,
                 core::Snapshot stored)
    : options_(std::move(options)),
      store_(store),
      clock_(clock),
      board_(board),
      loop_(options_.config, options_.retry_after_full_disk, std::move(stored), Now(),
            options_.make_policy) {}

Runtime::~Runtime() {
  Stop();
}

void Runtime::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Runtime::Post(core::Input input, Done done) {
  Enqueue(PostItem{std::move(input), std::move(done)});
}

void Runtime::Sync(core::SyncReport report, absl::Duration max_wait, SyncDone done) {
  Enqueue(SyncItem{std::move(report), max_wait, std::move(done)});
}

void Runtime::Read(ReadDone done) {
  Enqueue(ReadItem{std::move(done)});
}

void Runtime::Wake(const std::string& worker) {
  Enqueue(WakeItem{worker});
}

void Runtime::Enqueue(TurnItem item) {
  absl::Status refusal;
  {
    const MutexLock lock(&mutex_);
    if (!broken_.ok()) {
      refusal = broken_;
    } else if (stopping_) {
      refusal = ShuttingDown();
    } else if (queue_.size() >= options_.queue_max) {
      refusal = ServerBusy("its queue of requests is full");
    } else {
      queue_.push_back(std::move(item));
      changed_.Signal();
      return;
    }
  }
  Refuse(std::move(item), refusal);
}

void Runtime::Refuse(TurnItem item, const absl::Status& status) {
  std::visit(
      [&status](auto& refused) {
        if constexpr (requires { refused.done(status); }) refused.done(status);
      },
      item);
}

core::Now Runtime::Now() const {
  return {absl::ToUnixMicros(clock_.Now()), absl::ToInt64Microseconds(clock_.Uptime())};
}

absl::Duration Runtime::WaitLimit() const {
  const std::optional<int64_t> next = loop_.NextDeadline();
  if (!next.has_value()) return kIdleWait;
  const absl::Duration wait = absl::Microseconds(*next) - clock_.Uptime();
  return std::clamp(wait, absl::ZeroDuration(), kIdleWait);
}

// Waits for what the next turn works on. The result is empty if a timer is due, or at the end.
std::vector<TurnItem> Runtime::Take() {
  const absl::Duration limit = WaitLimit();
  const MutexLock lock(&mutex_);
  if (queue_.empty() && !stopping_) changed_.WaitWithTimeout(&mutex_, limit);
  std::vector<TurnItem> items;
  while (!queue_.empty() && items.size() < options_.batch_max) {
    items.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return items;
}

void Runtime::Loop() {
  while (true) {
    RunTurn(Take());
    const MutexLock lock(&mutex_);
    if ((stopping_ && queue_.empty()) || !broken_.ok()) break;
  }
  for (const TurnLoop::Answer& answer : loop_.EndWaiting(ShuttingDown())) answer();
  // Only a runtime that has failed has something left here.
  std::deque<TurnItem> rest;
  absl::Status broken;
  {
    const MutexLock lock(&mutex_);
    rest.swap(queue_);
    broken = broken_;
  }
  for (TurnItem& item : rest) Refuse(std::move(item), broken);
}

void Runtime::RunTurn(std::vector<TurnItem> items) {
  const core::Turn* turn = loop_.Take(std::move(items), Now());
  const auto answers = turn == nullptr ? loop_.Committed() : CommitTurn(*turn);
  for (const TurnLoop::Answer& answer : answers) answer();
}

std::vector<TurnLoop::Answer> Runtime::CommitTurn(const core::Turn& turn) {
  if (!turn.delta.empty()) {
    const absl::Status committed = store_.Commit(turn.delta);
    if (absl::IsResourceExhausted(committed)) return ReloadYard(committed);
    if (!committed.ok()) return Break(committed);
  }
  board_.Publish(loop_.yard(), turn);
  options_.on_turn(turn);
  return loop_.Committed();
}

std::vector<TurnLoop::Answer> Runtime::ReloadYard(const absl::Status& full) {
  LogError("no space to commit; nothing of this turn is kept",
           {{"error", std::string(full.message())}});
  auto snapshot = store_.Load();
  if (!snapshot.ok()) return Break(snapshot.status());
  auto answers = loop_.OutOfSpace(full, *std::move(snapshot));
  board_.Load(loop_.yard());
  return answers;
}

std::vector<TurnLoop::Answer> Runtime::Break(const absl::Status& status) {
  options_.on_fatal(status);
  {
    const MutexLock lock(&mutex_);
    broken_ = status;
  }
  return loop_.Broken(status);
}

}  // namespace trainyard::runtime
