// Implements the order of a turn. No call gives an answer by itself: answers are returned only by
// the calls that end a turn, so that no caller can give one before the commit.
#include "server/runtime/turn_loop.h"

#include <algorithm>

namespace trainyard::runtime {

TurnLoop::TurnLoop(core::Config config, absl::Duration rest_after_full_disk, core::Snapshot stored,
                   core::Now now, PolicyMaker make_policy)
    : config_(std::move(config)),
      rest_after_full_disk_us_(absl::ToInt64Microseconds(rest_after_full_disk)),
      make_policy_(std::move(make_policy)),
      yard_(config_, std::move(stored), now, make_policy_()) {}

std::optional<int64_t> TurnLoop::NextDeadline() const {
  std::optional<int64_t> next = yard_.NextDeadline();
  if (next.has_value()) next = std::max(*next, settle_after_us_);
  if (const auto answer = answer_by_.Earliest(); answer.has_value()) {
    next = std::min(next.value_or(*answer), *answer);
  }
  return next;
}

const core::Turn* TurnLoop::Take(std::vector<TurnItem> items, core::Now now) {
  now_ = now;
  turn_ = core::Turn();
  for (TurnItem& item : items) {
    if (auto* post = std::get_if<PostItem>(&item)) {
      auto reply = yard_.Apply(post->input, now);
      posts_.push_back({std::move(post->done), std::move(reply)});
    } else if (auto* sync = std::get_if<SyncItem>(&item)) {
      absl::Status status = yard_.Apply(core::Input(sync->report), now).status();
      syncs_.push_back({std::move(*sync), std::move(status)});
    } else if (auto* wake = std::get_if<WakeItem>(&item)) {
      // No name of a worker that is not there stays here.
      if (yard_.FindWorker(wake->worker) != nullptr) woken_.insert(std::move(wake->worker));
    } else {
      reads_.push_back(std::move(std::get<ReadItem>(item).done));
    }
  }
  const auto deadline = yard_.NextDeadline();
  const bool is_timer_due = deadline.has_value() && *deadline <= now.uptime_us;
  const bool may_settle = is_timer_due && settle_after_us_ <= now.uptime_us;
  if (posts_.empty() && syncs_.empty() && !may_settle) return nullptr;
  turn_ = yard_.Settle(now);
  return &turn_;
}

std::vector<TurnLoop::Answer> TurnLoop::Committed() {
  std::vector<Answer> answers;
  for (AppliedPost& post : posts_) {
    answers.push_back([done = std::move(post.done), reply = std::move(post.reply)]() mutable {
      done(std::move(reply));
    });
  }
  posts_.clear();
  for (AppliedSync& sync : syncs_) {
    if (sync.status.ok()) {
      AcceptSync(std::move(sync.item), answers);
    } else {
      answers.push_back([done = std::move(sync.item.done), status = sync.status] { done(status); });
    }
  }
  syncs_.clear();
  AnswerWaiting(answers);
  for (ReadDone& read : reads_) {
    answers.push_back([this, done = std::move(read)] { done(&yard_); });
  }
  reads_.clear();
  return answers;
}

std::vector<TurnLoop::Answer> TurnLoop::OutOfSpace(const absl::Status& status,
                                                   core::Snapshot stored) {
  settle_after_us_ = now_.uptime_us + rest_after_full_disk_us_;
  yard_ = core::Yard(config_, std::move(stored), now_, make_policy_());
  std::vector<Answer> answers;
  while (!waiting_.empty()) AnswerWaiting(std::string(waiting_.begin()->first), answers);
  AnswerAll(status, answers);
  return answers;
}

std::vector<TurnLoop::Answer> TurnLoop::Broken(const absl::Status& status) {
  std::vector<Answer> answers;
  AnswerAll(status, answers);
  return answers;
}

std::vector<TurnLoop::Answer> TurnLoop::EndWaiting(const absl::Status& status) {
  std::vector<Answer> answers;
  for (auto& [worker, waiting] : waiting_) {
    answers.push_back([done = std::move(waiting.done), status] { done(status); });
    answer_by_.Set(worker, std::nullopt);
  }
  waiting_.clear();
  return answers;
}

void TurnLoop::AnswerAll(const absl::Status& failed, std::vector<Answer>& answers) {
  for (AppliedPost& post : posts_) {
    // A refusal by the yard is valid, whether the commit succeeds or not.
    const absl::Status status = post.reply.ok() ? failed : post.reply.status();
    answers.push_back([done = std::move(post.done), status] { done(status); });
  }
  posts_.clear();
  for (AppliedSync& sync : syncs_) {
    const absl::Status status = sync.status.ok() ? failed : sync.status;
    answers.push_back([done = std::move(sync.item.done), status] { done(status); });
  }
  syncs_.clear();
  for (ReadDone& read : reads_) {
    answers.push_back([done = std::move(read), failed] { done(failed); });
  }
  reads_.clear();
}

void TurnLoop::AcceptSync(SyncItem item, std::vector<Answer>& answers) {
  const auto worker = yard_.WorkerOfSession(item.report.session);
  if (!worker.ok()) {  // a registration in the same turn has ended the session
    answers.push_back([done = std::move(item.done), status = worker.status()] { done(status); });
    return;
  }
  AnswerWaiting(*worker, answers);
  const bool has_news = woken_.erase(*worker) > 0 || item.report.desired_revision == 0 ||
                        item.report.desired_revision != yard_.DesiredRevision(*worker);
  if (has_news || item.max_wait <= absl::ZeroDuration()) {
    answers.push_back(AnswerSync(*worker, item.report.session, std::move(item.done)));
    return;
  }
  waiting_[*worker] = {item.report.session, std::move(item.done)};
  answer_by_.Set(*worker, now_.uptime_us + absl::ToInt64Microseconds(item.max_wait));
}

// Returns the answers to workers that have new orders, whose session has ended, or whose time is
// over. A turn looks at no others.
void TurnLoop::AnswerWaiting(std::vector<Answer>& answers) {
  for (const std::string& worker : turn_.desired_changed) AnswerWaiting(worker, answers);
  std::erase_if(woken_, [&](const std::string& worker) {
    const bool is_waiting = waiting_.contains(worker);
    AnswerWaiting(worker, answers);
    return is_waiting;
  });
  const auto answer_ended = [&](const std::string& worker) {
    const auto waiting = waiting_.find(worker);
    if (waiting == waiting_.end() || yard_.WorkerOfSession(waiting->second.session).ok()) return;
    AnswerWaiting(worker, answers);
  };
  for (const core::WorkerRecord& worker : turn_.delta.workers) answer_ended(worker.name);
  for (const std::string& worker : turn_.delta.deleted_workers) answer_ended(worker);
  for (const std::string& worker : answer_by_.Due(now_.uptime_us)) AnswerWaiting(worker, answers);
}

void TurnLoop::AnswerWaiting(const std::string& worker, std::vector<Answer>& answers) {
  const auto found = waiting_.find(worker);
  if (found == waiting_.end()) return;
  Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  answer_by_.Set(worker, std::nullopt);
  answers.push_back(AnswerSync(worker, waiting.session, std::move(waiting.done)));
}

TurnLoop::Answer TurnLoop::AnswerSync(const std::string& worker, const std::string& session,
                                      SyncDone done) const {
  const auto owner = yard_.WorkerOfSession(session);
  if (!owner.ok()) return [done = std::move(done), status = owner.status()] { done(status); };
  DesiredState state{worker, yard_.DesiredRevision(worker), yard_.DesiredFor(worker)};
  return [done = std::move(done), state = std::move(state)]() mutable { done(std::move(state)); };
}

}  // namespace trainyard::runtime
