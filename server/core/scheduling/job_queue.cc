// Keeps the levels, owners, kinds and shapes of the queue in step with its jobs.
#include "server/core/scheduling/job_queue.h"

#include <bit>

#include "common/base/check.h"

namespace trainyard::core {

int64_t RoundUpExpected(int64_t expected_us) {
  constexpr int kBits = 5;  // leading bits that are kept
  if (expected_us <= 0) return 0;
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(expected_us)));
  if (bits <= kBits) return expected_us;
  const int64_t step = int64_t{1} << (bits - kBits);
  return (expected_us + step - 1) / step * step;
}

Shape ShapeOf(const QueuedJob& job) {
  return {job.demand,       RoundUpExpected(job.expected_us),
          job.reservations, job.reservation,
          job.preemptible,  job.named_user};
}

namespace {

KindEntry EntryOf(const JobKind& kind) {
  return {&kind, kind.index, kind.shape_index};
}

}  // namespace

int32_t JobQueue::Numbers::Take() {
  if (free_.empty()) return next_++;
  const int32_t number = *free_.begin();
  free_.erase(free_.begin());
  return number;
}

void JobQueue::Put(QueuedJob job) {
  Remove(job.id);
  const JobId id = job.id;
  const QueuedJob& stored = jobs_.emplace(id, std::move(job)).first->second;
  if (stored.demand.is_deviceless) ++deviceless_;
  if (stored.holds.empty()) {
    Insert(stored);
  } else {
    with_holds_.insert(id);
  }
}

void JobQueue::Remove(JobId job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  if (found->second.demand.is_deviceless) --deviceless_;
  if (with_holds_.erase(job) == 0) Erase(found->second);
  jobs_.erase(found);
}

const QueuedJob* JobQueue::Find(JobId job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

void JobQueue::Insert(const QueuedJob& job) {
  const auto [shape, is_new_shape] = shapes_.try_emplace(ShapeOf(job));
  if (is_new_shape) shape->second.index = shape_numbers_.Take();
  Level& level = levels_[job.priority];
  OwnerJobs& owned = level.owners[{job.project, job.user}];
  const auto [place, is_new] = owned.kinds.try_emplace({shape->second.index, job.array});
  JobKind& kind = place->second;
  if (is_new) {
    kind.shape = &shape->first;
    kind.shape_index = shape->second.index;
    kind.index = kind_numbers_.Take();
    kind.array = job.array;
    ++shape->second.kinds;
    ++level.shapes[kind.shape_index];
  } else if (job.id < kind.jobs.begin()->first) {
    level.by_first_job.erase(kind.jobs.begin()->first);
    owned.by_first_job.erase(kind.jobs.begin()->first);
  }
  kind.jobs.emplace(job.id, &job);
  level.by_first_job.insert_or_assign(kind.jobs.begin()->first, EntryOf(kind));
  owned.by_first_job.insert_or_assign(kind.jobs.begin()->first, EntryOf(kind));
}

void JobQueue::Erase(const QueuedJob& job) {
  const auto shape = shapes_.find(ShapeOf(job));
  const auto level = levels_.find(job.priority);
  TY_CHECK(shape != shapes_.end() && level != levels_.end());
  const auto owned = level->second.owners.find({job.project, job.user});
  TY_CHECK(owned != level->second.owners.end());
  const auto place = owned->second.kinds.find({shape->second.index, job.array});
  TY_CHECK(place != owned->second.kinds.end());
  JobKind& kind = place->second;
  const bool was_front = kind.jobs.begin()->first == job.id;
  TY_CHECK(kind.jobs.erase(job.id) == 1);
  if (!was_front) return;
  level->second.by_first_job.erase(job.id);
  owned->second.by_first_job.erase(job.id);
  if (!kind.jobs.empty()) {
    level->second.by_first_job.emplace(kind.jobs.begin()->first, EntryOf(kind));
    owned->second.by_first_job.emplace(kind.jobs.begin()->first, EntryOf(kind));
    return;
  }
  kind_numbers_.Return(kind.index);
  const auto shape_here = level->second.shapes.find(kind.shape_index);
  if (--shape_here->second == 0) level->second.shapes.erase(shape_here);
  owned->second.kinds.erase(place);
  if (owned->second.kinds.empty()) level->second.owners.erase(owned);
  if (level->second.owners.empty()) levels_.erase(level);
  if (--shape->second.kinds == 0) {
    shape_numbers_.Return(shape->second.index);
    shapes_.erase(shape);
  }
}

}  // namespace trainyard::core
