#include "server/core/queue_order.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <tuple>

namespace trainyard::core {
namespace {

// How far the walk has come in each kind; phases of a walk share it.
class Progress {
 public:
  explicit Progress(const JobQueue& queue)
      : next_(queue.kind_limit()), closed_shapes_(queue.shape_limit(), false) {}

  // The next job of the kind; null where it has none left for this walk.
  const QueuedJob* Next(const JobKind& kind) const {
    const Mark& mark = next_[static_cast<size_t>(kind.index)];
    if (mark.is_closed || IsClosed(kind.shape_index)) return nullptr;
    if (!mark.is_begun) return kind.jobs.begin()->second;
    return mark.next == kind.jobs.end() ? nullptr : mark.next->second;
  }
  void Pass(const JobKind& kind) {
    Mark& mark = next_[static_cast<size_t>(kind.index)];
    mark.next = std::next(mark.is_begun ? mark.next : kind.jobs.begin());
    mark.is_begun = true;
  }
  void Close(const JobKind& kind) { next_[static_cast<size_t>(kind.index)].is_closed = true; }
  void CloseShape(const JobKind& kind) {
    closed_shapes_[static_cast<size_t>(kind.shape_index)] = true;
  }
  bool IsClosed(int32_t shape_index) const {
    return closed_shapes_[static_cast<size_t>(shape_index)];
  }
  bool IsFresh(const JobKind& kind) const {
    const Mark& mark = next_[static_cast<size_t>(kind.index)];
    return !mark.is_begun && !mark.is_closed && !IsClosed(kind.shape_index);
  }

 private:
  struct Mark {
    std::map<JobId, const QueuedJob*>::const_iterator next;
    bool is_begun = false;
    bool is_closed = false;
  };
  std::vector<Mark> next_;
  std::vector<bool> closed_shapes_;
};

// Goes through the jobs of several fronts by number. Kinds wait in the fronts, which are sorted
// already; only those that the walk has begun are in a heap.
class Cursor {
 public:
  Cursor(std::vector<const Fronts*> sources, const Progress& progress) : progress_(progress) {
    for (const Fronts* source : sources) sources_.push_back({source->begin(), source->end()});
  }

  // The kind whose next job comes first; null at the end.
  const JobKind* Top() {
    while (true) {
      Source* first = nullptr;
      for (Source& source : sources_) {
        if (source.next == source.end) continue;
        if (first == nullptr || source.next->first < first->next->first) first = &source;
      }
      if (first != nullptr && (begun_.empty() || first->next->first <= begun_.top().first)) {
        const JobKind* kind = first->next->second;
        if (progress_.IsFresh(*kind)) return kind;
        ++first->next;
        Requeue(*kind);
        continue;
      }
      if (begun_.empty()) return nullptr;
      const auto [job, kind] = begun_.top();
      const QueuedJob* next = progress_.Next(*kind);
      if (next != nullptr && next->id == job) return kind;
      begun_.pop();
      Requeue(*kind);
    }
  }

 private:
  struct Source {
    Fronts::const_iterator next;
    Fronts::const_iterator end;
  };
  using Entry = std::pair<JobId, const JobKind*>;
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return b.first < a.first; }
  };

  void Requeue(const JobKind& kind) {
    const QueuedJob* next = progress_.Next(kind);
    if (next != nullptr) begun_.push({next->id, &kind});
  }

  const Progress& progress_;
  std::vector<Source> sources_;
  std::priority_queue<Entry, std::vector<Entry>, Later> begun_;
};

// Levels that count as one priority.
using Tier = std::vector<const Level*>;

class Walk {
 public:
  Walk(const JobQueue& queue, const FairShare& share, const OrderRules& rules,
       const Visitor& visitor)
      : share_(share), rules_(rules), visitor_(visitor), progress_(queue) {
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
  // The place of an owner's, or a project's, next job. Equal shares: the first job goes first.
  using Place = std::tuple<ShareKey, JobId>;
  struct OwnerWalk {
    Owner owner;
    std::unique_ptr<Cursor> cursor;
  };
  struct ProjectWalk {
    std::vector<OwnerWalk> owners;
    std::set<std::pair<Place, size_t>> places;  // index in `owners`
  };

  Visit VisitTop(const JobKind& kind) {
    const Visit visit = visitor_(*progress_.Next(kind));
    if (visit == Visit::kKindFails) {
      progress_.Close(kind);
    } else if (visit == Visit::kShapeFails) {
      progress_.CloseShape(kind);
    } else {
      progress_.Pass(kind);
    }
    return visit;
  }

  // Jobs are numbered as they are submitted, so those that have waited longest come first in every
  // kind. Without fair share all go by number.
  bool VisitOverdue(const Tier& tier) {
    std::vector<const Fronts*> sources;
    for (const Level* level : tier) sources.push_back(&level->fronts);
    Cursor cursor(std::move(sources), progress_);
    while (const JobKind* kind = cursor.Top()) {
      if (rules_.fair_share &&
          progress_.Next(*kind)->waiting_since_us >= rules_.overdue_before_us) {
        break;
      }
      if (VisitTop(*kind) == Visit::kEnough) return false;
    }
    return true;
  }

  bool HasOpenShape(const Tier& tier) const {
    for (const Level* level : tier) {
      for (const auto& [shape_index, kinds] : level->shapes) {
        if (!progress_.IsClosed(shape_index)) return true;
      }
    }
    return false;
  }

  bool VisitByShare(const Tier& tier) {
    std::map<Owner, std::vector<const Fronts*>> owners;
    for (const Level* level : tier) {
      for (const auto& [owner, bucket] : level->buckets) owners[owner].push_back(&bucket.fronts);
    }
    std::map<std::string, ProjectWalk> projects;
    for (auto& [owner, sources] : owners) {
      projects[owner.first].owners.push_back(
          {owner, std::make_unique<Cursor>(std::move(sources), progress_)});
    }
    std::set<std::pair<Place, ProjectWalk*>> places;
    const auto add = [&](ProjectWalk& project) {
      if (project.places.empty()) return;
      const auto& [place, index] = *project.places.begin();
      places.insert(
          {{share_.OfProject(project.owners[index].owner.first), std::get<1>(place)}, &project});
    };
    for (auto& [name, project] : projects) {
      for (size_t i = 0; i < project.owners.size(); ++i) AddOwner(project, i);
      add(project);
    }
    while (!places.empty()) {
      ProjectWalk& project = *places.begin()->second;
      places.erase(places.begin());
      const size_t index = project.places.begin()->second;
      project.places.erase(project.places.begin());
      const JobKind* kind = project.owners[index].cursor->Top();
      if (kind != nullptr) {  // null: its shape has been closed meanwhile
        const Visit visit = VisitTop(*kind);
        if (visit == Visit::kEnough) return false;
        if (visit == Visit::kShapeFails && !HasOpenShape(tier)) return true;
      }
      AddOwner(project, index);
      add(project);
    }
    return true;
  }

  void AddOwner(ProjectWalk& project, size_t index) {
    OwnerWalk& owner = project.owners[index];
    const JobKind* kind = owner.cursor->Top();
    if (kind == nullptr) return;
    project.places.insert({{share_.OfUser(owner.owner), progress_.Next(*kind)->id}, index});
  }

  const FairShare& share_;
  const OrderRules& rules_;
  const Visitor& visitor_;
  Progress progress_;
  std::vector<Tier> tiers_;
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
