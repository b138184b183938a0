// The board keeps immutable views, so that a reader holds the lock only while it copies a pointer.
#include "server/runtime/board.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/core/lifecycle/words.h"

namespace trainyard::runtime {
namespace {

// A search of this many jobs takes some tenths of a millisecond.
constexpr size_t kJobsALook = 4096;

}  // namespace

void Board::Tally::Add(const Tally& other) {
  queued_jobs += other.queued_jobs;
  devices += other.devices;
  jobs += other.jobs;
  checkpoint_bytes += other.checkpoint_bytes;
  streams.logs += other.streams.logs;
  streams.metrics += other.streams.metrics;
  device_time_us += other.device_time_us;
}

void Board::Load(const core::Yard& yard) {
  const core::Snapshot& snapshot = yard.snapshot();
  {
    const MutexLock lock(&mutex_);
    revision_ = snapshot.revision;
    jobs_.clear();
    attempts_.clear();
    checkpoints_.clear();
    references_.clear();
    tallies_.clear();
    code_uses_.clear();
    for (const auto& [id, attempt] : snapshot.attempts) PutAttempt(attempt);
    for (const auto& [id, checkpoint] : snapshot.checkpoints) PutCheckpoint(checkpoint);
    for (const auto& [id, job] : snapshot.jobs) PutJob(yard, id);
  }
  for (const auto& [id, job] : snapshot.jobs) notifier_.Notify(id, kJobChanged);
  announced_revision_ = snapshot.revision;
}

void Board::Publish(const core::Yard& yard, const core::Turn& turn) {
  std::vector<JobId> changed(turn.reasons_changed.begin(), turn.reasons_changed.end());
  changed.insert(changed.end(), turn.streams_changed.begin(), turn.streams_changed.end());
  for (const auto& job : turn.delta.jobs) changed.push_back(job.id);
  for (const JobId job : turn.delta.deleted_jobs) changed.push_back(job);
  for (const auto& attempt : turn.delta.attempts) changed.push_back(attempt.id.job);
  for (const auto& checkpoint : turn.delta.checkpoints) changed.push_back(checkpoint.id.job);
  for (const auto& id : turn.delta.deleted_checkpoints) changed.push_back(id.job);
  std::sort(changed.begin(), changed.end());
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  {
    const MutexLock lock(&mutex_);
    if (!turn.delta.empty()) revision_ = turn.delta.revision;
    for (const auto& attempt : turn.delta.attempts) PutAttempt(attempt);
    for (const auto& checkpoint : turn.delta.checkpoints) PutCheckpoint(checkpoint);
    for (const auto& id : turn.delta.deleted_checkpoints) DropCheckpoint(id);
    for (const JobId job : turn.delta.deleted_jobs) {
      auto it = attempts_.lower_bound({job, 0});
      while (it != attempts_.end() && it->first.job == job) it = attempts_.erase(it);
    }
    for (const JobId job : changed) PutJob(yard, job);
  }
  for (const JobId job : changed) notifier_.Notify(job, kJobChanged);
  if (!turn.delta.empty()) announced_revision_ = turn.delta.revision;
}

void Board::PutAttempt(const core::AttemptRecord& attempt) {
  attempts_[attempt.id] = std::make_shared<const core::AttemptRecord>(attempt);
}

void Board::PutCheckpoint(const core::CheckpointRecord& checkpoint) {
  DropCheckpoint(checkpoint.id);
  for (const core::CheckpointFile& file : checkpoint.files) ++references_[file.hash];
  checkpoints_[checkpoint.id] = std::make_shared<const core::CheckpointRecord>(checkpoint);
}

void Board::DropCheckpoint(const core::CheckpointRef& id) {
  const auto checkpoint = checkpoints_.find(id);
  if (checkpoint == checkpoints_.end()) return;
  for (const core::CheckpointFile& file : checkpoint->second->files) {
    if (--references_[file.hash] > 0) continue;
    references_.erase(file.hash);
    dropped_.push_back(file.hash);
  }
  checkpoints_.erase(checkpoint);
}

// Adds what the job has to the counts, or subtracts it.
void Board::Count(const JobView& view, int64_t sign) {
  Tally change;
  change.jobs = sign;
  change.checkpoint_bytes = sign * view.checkpoint_bytes;
  change.streams = {sign * view.streams.logs, sign * view.streams.metrics};
  change.device_time_us = sign * view.record.device_time_us;
  if (std::holds_alternative<core::job_fsm::Queued>(view.record.state)) change.queued_jobs = sign;
  if (view.attempt != nullptr && !core::attempt_fsm::IsFinal(view.attempt->state)) {
    for (const core::AttemptPart& part : view.attempt->parts) {
      if (!HoldsDevices(part.state)) continue;
      for (const core::RankPlacement& rank : view.attempt->ranks) {
        if (rank.worker == part.worker && !rank.device.empty()) change.devices += sign;
      }
    }
  }
  const core::UsageKey key{view.record.submission->project, view.record.submission->user};
  Tally& tally = tallies_[key];
  tally.Add(change);
  if (tally == Tally{}) tallies_.erase(key);
  CountCode(*view.record.submission, sign);
}

void Board::CountCode(const core::Submission& submission, int64_t sign) {
  for (const std::string* digest : {&submission.code_digest, &submission.code_diff_digest}) {
    if (digest->empty()) continue;
    const auto [use, is_new] =
        code_uses_.try_emplace({*digest, submission.user, submission.project}, 0);
    use->second += sign;
    if (use->second == 0) code_uses_.erase(use);
  }
}

bool Board::IsCodeUsed(const std::string& digest, const AcceptOwner& accept) const {
  const MutexLock lock(&mutex_);
  for (auto use = code_uses_.lower_bound({digest, "", ""});
       use != code_uses_.end() && use->first.digest == digest; ++use) {
    if (accept(use->first.user, use->first.project)) return true;
  }
  return false;
}

std::set<std::string> Board::CodeOf(const std::string& user) const {
  std::set<std::string> digests;
  const MutexLock lock(&mutex_);
  for (const auto& [use, jobs] : code_uses_) {
    if (use.user == user) digests.insert(use.digest);
  }
  return digests;
}

std::map<core::UsageKey, Board::Tally> Board::Tallies() const {
  const MutexLock lock(&mutex_);
  return tallies_;
}

void Board::PutJob(const core::Yard& yard, JobId job) {
  if (const auto old = jobs_.find(job); old != jobs_.end()) Count(*old->second, -1);
  const core::JobRecord* record = yard.FindJob(job);
  if (record == nullptr) {
    jobs_.erase(job);
    return;
  }
  auto view = std::make_shared<JobView>();
  view->record = *record;
  view->queue_reasons = yard.QueueReasons(job);
  const auto attempt = attempts_.find({job, record->attempt});
  if (attempt != attempts_.end()) view->attempt = attempt->second;
  auto it = checkpoints_.upper_bound({job, std::numeric_limits<int64_t>::max()});
  while (it != checkpoints_.begin() && (--it)->first.job == job) {
    const core::CheckpointRecord& checkpoint = *it->second;
    view->checkpoint_bytes += checkpoint.bytes();
    if (it->first.is_outputs()) break;
    if (view->checkpoint_step == 0 && checkpoint.is_whole()) view->checkpoint_step = it->first.step;
  }
  if (const core::StreamBytes* known = yard.FindStreams(job)) view->streams = *known;
  Count(*view, 1);
  jobs_[job] = std::move(view);
}

std::vector<std::string> Board::TakeDropped() {
  const MutexLock lock(&mutex_);
  return std::exchange(dropped_, {});
}

int64_t Board::revision() const {
  const MutexLock lock(&mutex_);
  return revision_;
}

std::shared_ptr<const JobView> Board::FindJob(JobId job) const {
  const MutexLock lock(&mutex_);
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : it->second;
}

std::shared_ptr<const core::AttemptRecord> Board::FindAttempt(AttemptId attempt) const {
  const MutexLock lock(&mutex_);
  const auto it = attempts_.find(attempt);
  return it == attempts_.end() ? nullptr : it->second;
}

std::shared_ptr<const core::CheckpointRecord> Board::FindCheckpoint(core::CheckpointRef id) const {
  const MutexLock lock(&mutex_);
  const auto it = checkpoints_.find(id);
  return it == checkpoints_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<const JobView>> Board::ListJobs(
    int64_t before, size_t limit, const std::function<bool(const JobView&)>& accept,
    int64_t after) const {
  std::vector<std::shared_ptr<const JobView>> found;
  bool is_over = false;
  while (!is_over) {
    const MutexLock lock(&mutex_);
    auto it = before == 0 ? jobs_.end() : jobs_.lower_bound(JobId{before});
    for (size_t seen = 0; seen < kJobsALook && !is_over; ++seen) {
      is_over = it == jobs_.begin() || found.size() >= limit || std::prev(it)->first.value <= after;
      if (is_over) break;
      --it;
      if (accept(*it->second)) found.push_back(it->second);
      before = it->first.value;
    }
  }
  return found;
}

std::vector<std::pair<JobId, int64_t>> Board::ChangedSince(int64_t revision) const {
  std::vector<std::pair<JobId, int64_t>> changed;
  const MutexLock lock(&mutex_);
  for (const auto& [id, view] : jobs_) {
    if (view->record.revision > revision) changed.emplace_back(id, view->record.revision);
  }
  return changed;
}

std::vector<std::shared_ptr<const core::AttemptRecord>> Board::AttemptsOf(JobId job) const {
  std::vector<std::shared_ptr<const core::AttemptRecord>> found;
  const MutexLock lock(&mutex_);
  for (auto it = attempts_.lower_bound({job, 0}); it != attempts_.end() && it->first.job == job;
       ++it) {
    found.push_back(it->second);
  }
  return found;
}

std::vector<std::shared_ptr<const core::CheckpointRecord>> Board::CheckpointsOf(JobId job) const {
  std::vector<std::shared_ptr<const core::CheckpointRecord>> found;
  const MutexLock lock(&mutex_);
  for (auto it = checkpoints_.lower_bound({job, 0});
       it != checkpoints_.end() && it->first.job == job; ++it) {
    found.push_back(it->second);
  }
  return found;
}

bool Board::IsReferenced(const std::string& hash) const {
  const MutexLock lock(&mutex_);
  return references_.contains(hash);
}

}  // namespace trainyard::runtime
