// Sorts the queue for passes over 100,000 jobs. It is an index that each change keeps up to date:
//
//   level       the jobs of one priority; larger priorities come first
//   owner jobs  the jobs of a level that one user has in one project; fair share puts them in order
//   kind        the jobs of an owner that only their numbers tell apart: if the first cannot start,
//               none can
//   shape       what kinds of all owners have in common, and what decides where a job fits
//
// A pass therefore asks once for each shape, and not once for each job. Jobs with holds are in no
// kind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "server/core/scheduling/placement.h"

namespace trainyard::core {

struct Shape {
  Demand demand;
  int64_t expected_us = 0;  // rounded up (RoundUpExpected)
  std::set<std::string> reservations;
  std::string reservation;
  bool preemptible = true;
  std::string named_user = {};

  friend auto operator<=>(const Shape&, const Shape&) = default;
};

// Rounds up by less than a sixteenth, so that small differences of time do not make separate
// shapes. 0, which stands for unknown, stays 0.
int64_t RoundUpExpected(int64_t expected_us);
Shape ShapeOf(const QueuedJob& job);

struct JobKind {
  const Shape* shape = nullptr;
  // The indices are small numbers that are reused, so that a pass can keep its notes in vectors.
  int32_t index = 0;
  int32_t shape_index = 0;
  JobId array;
  absl::btree_map<JobId, const QueuedJob*> jobs;  // never empty
};

// A kind in the list of its owner or level. A pass skips most kinds because of their shape, which
// is therefore copied here: the kinds themselves are scattered over the memory.
struct KindEntry {
  const JobKind* kind = nullptr;
  int32_t index = 0;  // as in the kind
  int32_t shape_index = 0;
};
using KindsByFirstJob = absl::btree_map<JobId, KindEntry>;

struct OwnerJobs {
  KindsByFirstJob by_first_job;
  std::map<std::pair<int32_t, JobId>, JobKind> kinds;  // by shape_index and array
};

using Owner = std::pair<std::string, std::string>;  // project, user

struct Level {
  KindsByFirstJob by_first_job;       // of all owners
  std::map<int32_t, int64_t> shapes;  // the number of kinds, by shape index
  std::map<Owner, OwnerJobs> owners;
};

// The queue. It is not thread-safe. Pointers are valid until the next change.
class JobQueue {
 public:
  using Levels = std::map<int32_t, Level, std::greater<>>;  // by priority

  JobQueue() = default;
  JobQueue(JobQueue&&) = default;  // borrowed pointers stay valid
  JobQueue& operator=(JobQueue&&) = default;
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  void Put(QueuedJob job);  // replaces a job that has the same number
  void Remove(JobId job);
  const QueuedJob* Find(JobId job) const;
  size_t size() const { return jobs_.size(); }
  // Returns how many of the jobs ask for no device.
  int32_t deviceless() const { return deviceless_; }
  bool empty() const { return jobs_.empty(); }
  const std::map<JobId, QueuedJob>& jobs() const { return jobs_; }

  const Levels& levels() const { return levels_; }
  const std::set<JobId>& with_holds() const { return with_holds_; }
  // All indices of kinds and of shapes are smaller than these limits.
  size_t kind_limit() const { return kind_numbers_.limit(); }
  size_t shape_limit() const { return shape_numbers_.limit(); }

 private:
  // Gives out the smallest free numbers.
  class Numbers {
   public:
    int32_t Take();
    void Return(int32_t number) { free_.insert(number); }
    size_t limit() const { return static_cast<size_t>(next_); }

   private:
    std::set<int32_t> free_;
    int32_t next_ = 0;
  };
  struct ShapeUse {
    int32_t index = 0;
    int64_t kinds = 0;
  };

  void Insert(const QueuedJob& job);
  void Erase(const QueuedJob& job);

  std::map<JobId, QueuedJob> jobs_;
  int32_t deviceless_ = 0;
  std::set<JobId> with_holds_;
  Levels levels_;
  std::map<Shape, ShapeUse> shapes_;
  Numbers kind_numbers_;
  Numbers shape_numbers_;
};

}  // namespace trainyard::core
