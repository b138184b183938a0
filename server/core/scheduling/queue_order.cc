// Walks the queue in its order without sorting it: by priority, then by the share of the owners.
// Each owner has a cursor over the kinds of its jobs.
#include "server/core/scheduling/queue_order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "absl/container/inlined_vector.h"

namespace trainyard::core {
namespace {

using Jobs = decltype(JobKind::jobs);

// Marks how far the walk has come in each kind. The phases of a walk share the marks.
class WalkMarks {
 public:
  explicit WalkMarks(const JobQueue& queue)
      : mark_of_(queue.kind_limit(), kFresh), closed_shapes_(queue.shape_limit(), false) {}

  // Returns the next job of the kind, or null if none is left in this walk.
  const Jobs::value_type* Next(const JobKind& kind) const {
    if (IsClosed(kind.shape_index)) return nullptr;
    const int32_t mark = mark_of_[static_cast<size_t>(kind.index)];
    if (mark == kClosed) return nullptr;
    if (mark == kFresh) return &*kind.jobs.begin();
    const auto& next = nexts_[static_cast<size_t>(mark)];
    return next == kind.jobs.end() ? nullptr : &*next;
  }
  void Pass(const JobKind& kind) {
    int32_t& mark = mark_of_[static_cast<size_t>(kind.index)];
    if (mark == kFresh) {
      mark = static_cast<int32_t>(nexts_.size());
      nexts_.push_back(kind.jobs.begin());
    }
    ++nexts_[static_cast<size_t>(mark)];
  }
  void Close(const JobKind& kind) { mark_of_[static_cast<size_t>(kind.index)] = kClosed; }
  void CloseShape(const JobKind& kind) {
    closed_shapes_[static_cast<size_t>(kind.shape_index)] = true;
  }
  bool IsClosed(int32_t shape_index) const {
    return closed_shapes_[static_cast<size_t>(shape_index)];
  }
  bool IsFresh(const KindEntry& front) const {
    return !IsClosed(front.shape_index) && mark_of_[static_cast<size_t>(front.index)] == kFresh;
  }

 private:
  static constexpr int32_t kFresh = -1;   // all jobs of the kind are left
  static constexpr int32_t kClosed = -2;  // no job of the kind is left

  std::vector<int32_t> mark_of_;  // by kind: the index in `nexts_`; most kinds stay fresh
  std::vector<Jobs::const_iterator> nexts_;
  std::vector<bool> closed_shapes_;
};

// Goes through the jobs of several lists of kinds by number. The lists are sorted already, so kinds
// wait there; only those that the walk has begun are in a heap.
class Cursor {
 public:
  using Entry = std::pair<JobId, const JobKind*>;

  explicit Cursor(const WalkMarks& marks) : marks_(&marks) {}
  // Adds a list. It must be called before the first Top.
  void Add(const KindsByFirstJob& source) { sources_.push_back({source.begin(), source.end()}); }

  // Returns the next job and its kind. The kind is null at the end.
  Entry Top() {
    while (true) {
      Source* first = nullptr;
      for (Source& source : sources_) {
        if (source.next == source.end) continue;
        if (first == nullptr || source.next->first < first->next->first) first = &source;
      }
      if (first != nullptr && (begun_.empty() || first->next->first <= begun_.front().first)) {
        const auto& [job, front] = *first->next;
        if (marks_->IsFresh(front)) return {job, front.kind};
        ++first->next;
        if (!marks_->IsClosed(front.shape_index)) Requeue(*front.kind);
        continue;
      }
      if (begun_.empty()) return {JobId{}, nullptr};
      const auto [job, kind] = begun_.front();
      const Jobs::value_type* next = marks_->Next(*kind);
      if (next != nullptr && next->first == job) return {job, kind};
      std::pop_heap(begun_.begin(), begun_.end(), Later);
      begun_.pop_back();
      Requeue(*kind);
    }
  }

 private:
  struct Source {
    KindsByFirstJob::const_iterator next;
    KindsByFirstJob::const_iterator end;
  };
  static bool Later(const Entry& a, const Entry& b) { return b.first < a.first; }

  void Requeue(const JobKind& kind) {
    const Jobs::value_type* next = marks_->Next(kind);
    if (next == nullptr) return;
    begun_.emplace_back(next->first, &kind);
    std::push_heap(begun_.begin(), begun_.end(), Later);
  }

  const WalkMarks* marks_;
  absl::InlinedVector<Source, 1> sources_;
  std::vector<Entry> begun_;
};

// The levels that count as one priority.
using Tier = std::vector<const Level*>;

class Walk {
 public:
  Walk(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
       const Visitor& visitor)
      : share_(share), rules_(rules), visitor_(visitor), marks_(queue) {
    for (const auto& [priority, level] : queue.levels()) {
      if (tiers_.empty() || rules.priorities) tiers_.emplace_back();
      tiers_.back().push_back(&level);
    }
  }

  void Run() {
    for (const Tier& tier : tiers_) {
      if (!VisitOverdue(tier)) return;
      if (rules_.fair_share && HasOpenShape(tier) && !VisitByShare(tier)) return;
    }
  }

 private:
  // The standing of an owner or a project: its share, its next job, and its index. Among equal
  // shares the smaller job comes first.
  using Standing = std::tuple<ShareKey, JobId, size_t>;
  using Standings = std::priority_queue<Standing, std::vector<Standing>, std::greater<>>;
  struct OwnerWalk {
    const Owner* owner;
    Cursor cursor;
  };
  struct ProjectWalk {
    const std::string* name;
    Standings owners;  // their owners, as indices of owners_
  };

  Visit VisitTop(const JobKind& kind) {
    const Visit visit = visitor_(*marks_.Next(kind)->second);
    if (visit == Visit::kKindFails) {
      marks_.Close(kind);
    } else if (visit == Visit::kShapeFails) {
      marks_.CloseShape(kind);
    } else {
      marks_.Pass(kind);
    }
    return visit;
  }

  // Jobs are numbered as they are submitted, so those that have waited longest come first in every
  // kind. Without fair share, all jobs go by number.
  bool VisitOverdue(const Tier& tier) {
    Cursor cursor(marks_);
    for (const Level* level : tier) cursor.Add(level->by_first_job);
    for (auto [job, kind] = cursor.Top(); kind != nullptr; std::tie(job, kind) = cursor.Top()) {
      if (rules_.fair_share &&
          marks_.Next(*kind)->second->waiting_since_us >= rules_.overdue_before_us) {
        break;
      }
      if (VisitTop(*kind) == Visit::kEnough) return false;
    }
    return true;
  }

  bool HasOpenShape(const Tier& tier) const {
    for (const Level* level : tier) {
      for (const auto& [shape_index, kinds] : level->shapes) {
        if (!marks_.IsClosed(shape_index)) return true;
      }
    }
    return false;
  }

  bool VisitByShare(const Tier& tier) {
    FindOwners(tier);
    std::vector<ProjectWalk> projects;
    for (size_t i = 0; i < owners_.size(); ++i) {
      const std::string& project = owners_[i].owner->first;
      if (projects.empty() || *projects.back().name != project) projects.push_back({&project, {}});
      AddOwner(projects.back(), i);
    }
    Standings standings;
    const auto add = [&](size_t index) {
      const ProjectWalk& project = projects[index];
      if (project.owners.empty()) return;
      const JobId first = std::get<JobId>(project.owners.top());
      standings.push({share_.OfProject(*project.name), first, index});
    };
    for (size_t i = 0; i < projects.size(); ++i) add(i);
    while (!standings.empty()) {
      const size_t at = std::get<size_t>(standings.top());
      standings.pop();
      ProjectWalk& project = projects[at];
      const size_t index = std::get<size_t>(project.owners.top());
      project.owners.pop();
      const JobKind* kind = owners_[index].cursor.Top().second;
      if (kind != nullptr) {  // null if its shape has been closed in the meantime
        const Visit visit = VisitTop(*kind);
        if (visit == Visit::kEnough) return false;
        if (visit == Visit::kShapeFails && !HasOpenShape(tier)) return true;
      }
      AddOwner(project, index);
      add(at);
    }
    return true;
  }

  // Finds the owners of the tier. The owners of a project follow each other.
  void FindOwners(const Tier& tier) {
    std::vector<std::pair<const Owner*, const KindsByFirstJob*>> sources;
    for (const Level* level : tier) {
      for (const auto& [owner, owned] : level->owners)
        sources.push_back({&owner, &owned.by_first_job});
    }
    if (tier.size() > 1) {
      std::stable_sort(sources.begin(), sources.end(),
                       [](const auto& a, const auto& b) { return *a.first < *b.first; });
    }
    owners_.clear();
    owners_.reserve(sources.size());
    for (const auto& [owner, kinds] : sources) {
      if (owners_.empty() || *owners_.back().owner != *owner) {
        owners_.push_back({owner, Cursor(marks_)});
      }
      owners_.back().cursor.Add(*kinds);
    }
  }

  void AddOwner(ProjectWalk& project, size_t index) {
    OwnerWalk& owner = owners_[index];
    const auto [job, kind] = owner.cursor.Top();
    if (kind != nullptr) project.owners.push({share_.OfUser(*owner.owner), job, index});
  }

  const FairShare& share_;
  const OrderRules& rules_;
  const Visitor& visitor_;
  WalkMarks marks_;
  std::vector<Tier> tiers_;
  std::vector<OwnerWalk> owners_;  // of the tier
};

}  // namespace

void WalkQueue(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
               const Visitor& visitor) {
  Walk(queue, share, rules, visitor).Run();
}

std::vector<JobId> FirstJobs(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
                             size_t limit) {
  std::vector<JobId> jobs;
  if (limit == 0) return jobs;
  jobs.reserve(std::min(limit, queue.size()));
  WalkQueue(queue, share, rules, [&](const QueuedJob& job) {
    jobs.push_back(job.id);
    return jobs.size() < limit ? Visit::kPassed : Visit::kEnough;
  });
  return jobs;
}

}  // namespace trainyard::core
