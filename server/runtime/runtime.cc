#include "server/runtime/runtime.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "server/core/scheduling/policy.h"
#include "server/runtime/executor.h"

namespace trainyard::runtime {
namespace {

// Longest sleep of the writer without a timer.
constexpr absl::Duration kIdleWait = absl::Minutes(1);

absl::Status ShuttingDown() {
  return absl::UnavailableError("the server is shutting down; try again");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Start(Options options, store::Store& store,
                                                        Clock& clock, Board& board) {
  TY_CHECK(options.on_fatal != nullptr);
  TY_ASSIGN_OR_RETURN(core::Snapshot snapshot, store.Load());
  const core::Now now = {absl::ToUnixMicros(clock.Now()),
                         absl::ToInt64Microseconds(clock.Uptime())};
  core::Yard yard(options.config, std::move(snapshot), now);
  std::unique_ptr<Runtime> runtime(
      new Runtime(std::move(options), store, clock, board, std::move(yard)));
  board.Load(runtime->yard_);
  runtime->thread_ = std::thread([&writer = *runtime] { writer.Loop(); });
  return runtime;
}

Runtime::Runtime(Options options, store::Store& store, Clock& clock, Board& board, core::Yard yard)
    : options_(std::move(options)),
      store_(store),
      clock_(clock),
      board_(board),
      yard_(std::move(yard)) {}

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

void Runtime::Enqueue(Item item) {
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

void Runtime::Refuse(Item item, const absl::Status& status) {
  std::visit([&status](auto& refused) { refused.done(status); }, item);
}

core::Now Runtime::Now() const {
  return {absl::ToUnixMicros(clock_.Now()), absl::ToInt64Microseconds(clock_.Uptime())};
}

absl::Duration Runtime::WaitLimit() const {
  std::optional<int64_t> next = yard_.NextDeadline();
  if (next.has_value()) next = std::max(*next, settle_after_us_);
  if (const auto answer = answer_by_.Earliest(); answer.has_value()) {
    next = std::min(next.value_or(*answer), *answer);
  }
  if (!next.has_value()) return kIdleWait;
  const absl::Duration wait = absl::Microseconds(*next) - clock_.Uptime();
  return std::clamp(wait, absl::ZeroDuration(), kIdleWait);
}

// What the next turn works on: empty when a timer is due, or at the end.
std::vector<Runtime::Item> Runtime::Take() {
  const absl::Duration limit = WaitLimit();
  const MutexLock lock(&mutex_);
  if (queue_.empty() && !stopping_) changed_.WaitWithTimeout(&mutex_, limit);
  std::vector<Item> items;
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
  for (auto& [worker, waiting] : waiting_) waiting.done(ShuttingDown());
  waiting_.clear();
  // Only a broken runtime leaves anything here.
  std::deque<Item> rest;
  absl::Status broken;
  {
    const MutexLock lock(&mutex_);
    rest.swap(queue_);
    broken = broken_;
  }
  for (Item& item : rest) Refuse(std::move(item), broken);
}

void Runtime::RunTurn(std::vector<Item> items) {
  const core::Now now = Now();
  std::vector<Applied> applied;
  std::vector<SyncItem> syncs;
  std::vector<absl::Status> sync_results;
  std::vector<ReadItem> reads;
  for (Item& item : items) {
    if (auto* post = std::get_if<PostItem>(&item)) {
      auto reply = yard_.Apply(post->input, now);
      applied.push_back({std::move(post->done), std::move(reply)});
    } else if (auto* sync = std::get_if<SyncItem>(&item)) {
      sync_results.push_back(yard_.Apply(core::Input(sync->report), now).status());
      syncs.push_back(std::move(*sync));
    } else {
      reads.push_back(std::move(std::get<ReadItem>(item)));
    }
  }
  const auto deadline = yard_.NextDeadline();
  const bool timer_is_due = deadline.has_value() && *deadline <= now.uptime_us;
  core::Turn turn;
  absl::Status committed;
  if (!applied.empty() || !syncs.empty() || (timer_is_due && settle_after_us_ <= now.uptime_us)) {
    turn = yard_.Settle(now);
    committed = CommitTurn(turn, now);
  }

  for (Applied& input : applied) {
    // A refusal of the yard stands whatever became of the commit.
    const bool is_lost = input.reply.ok() && !committed.ok();
    input.done(is_lost ? absl::StatusOr<core::Reply>(committed) : std::move(input.reply));
  }
  for (size_t i = 0; i < syncs.size(); ++i) {
    if (!sync_results[i].ok()) {
      syncs[i].done(std::move(sync_results[i]));
    } else if (!committed.ok()) {
      syncs[i].done(committed);
    } else {
      AcceptSync(std::move(syncs[i]), now);
    }
  }
  if (committed.ok()) AnswerWaiting(turn, now);
  for (ReadItem& read : reads) {
    if (committed.ok()) {
      read.done(&yard_);
    } else {
      read.done(committed);
    }
  }
}

absl::Status Runtime::CommitTurn(const core::Turn& turn, core::Now now) {
  if (!turn.delta.empty()) {
    const absl::Status committed = store_.Commit(turn.delta);
    if (absl::IsResourceExhausted(committed)) {
      LogError("no space to commit; nothing of this turn is kept",
               {{"error", std::string(committed.message())}});
      ReloadYard(now);
      return committed;
    }
    if (!committed.ok()) {
      options_.on_fatal(committed);
      const MutexLock lock(&mutex_);
      broken_ = committed;
      return committed;
    }
  }
  board_.Publish(yard_, turn);
  options_.on_turn(turn);
  return absl::OkStatus();
}

// Back to what the store holds. Sessions are gone with the old yard: workers register again.
void Runtime::ReloadYard(core::Now now) {
  settle_after_us_ = now.uptime_us + absl::ToInt64Microseconds(options_.retry_after_full_disk);
  auto snapshot = store_.Load();
  if (!snapshot.ok()) {
    options_.on_fatal(snapshot.status());
    const MutexLock lock(&mutex_);
    broken_ = snapshot.status();
    return;
  }
  yard_ = core::Yard(options_.config, *std::move(snapshot), now);
  board_.Load(yard_);
  while (!waiting_.empty()) AnswerWaiting(std::string(waiting_.begin()->first));
}

void Runtime::AcceptSync(SyncItem item, core::Now now) {
  const auto worker = yard_.WorkerOfSession(item.report.session);
  if (!worker.ok()) {  // a registration in the same turn has ended the session
    item.done(worker.status());
    return;
  }
  AnswerWaiting(*worker);
  const bool has_news = item.report.desired_revision == 0 ||
                        item.report.desired_revision != yard_.DesiredRevision(*worker);
  if (has_news || item.max_wait <= absl::ZeroDuration()) {
    AnswerSync(*worker, item.report.session, item.done);
    return;
  }
  waiting_[*worker] = {item.report.session, std::move(item.done)};
  answer_by_.Set(*worker, now.uptime_us + absl::ToInt64Microseconds(item.max_wait));
}

// Those who have something new to do, whose session has ended, or whose time is over: a turn looks
// at no others.
void Runtime::AnswerWaiting(const core::Turn& turn, core::Now now) {
  for (const std::string& worker : turn.desired_changed) AnswerWaiting(worker);
  for (const core::WorkerRecord& worker : turn.delta.workers) {
    const auto waiting = waiting_.find(worker.name);
    if (waiting == waiting_.end() || yard_.WorkerOfSession(waiting->second.session).ok()) continue;
    AnswerWaiting(worker.name);
  }
  for (const std::string& worker : answer_by_.Due(now.uptime_us)) AnswerWaiting(worker);
}

void Runtime::AnswerWaiting(const std::string& worker) {
  const auto found = waiting_.find(worker);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  answer_by_.Set(worker, std::nullopt);
  AnswerSync(worker, waiting.session, waiting.done);
}

void Runtime::AnswerSync(const std::string& worker, const std::string& session,
                         const SyncDone& done) {
  const auto owner = yard_.WorkerOfSession(session);
  if (!owner.ok()) {
    done(owner.status());
    return;
  }
  done(DesiredState{yard_.DesiredRevision(worker), yard_.DesiredFor(worker)});
}

}  // namespace trainyard::runtime
