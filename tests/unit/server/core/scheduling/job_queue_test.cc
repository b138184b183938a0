// Tests the index of the queue.
#include "server/core/scheduling/job_queue.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

// The index as text, level by level: "5: /anna 1,3 2 | ..." with a group for each kind.
std::string Index(const JobQueue& queue) {
  std::string text;
  for (const auto& [priority, level] : queue.levels()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", priority, ":");
    for (const auto& [owner, owned] : level.owners) {
      absl::StrAppend(&text, " ", owner.first, "/", owner.second, "(");
      std::vector<std::string> kinds;
      for (const auto& [front, its] : owned.by_first_job) {
        std::vector<int64_t> ids;
        for (const auto& [id, job] : its.kind->jobs) ids.push_back(id.value);
        EXPECT_EQ(front.value, ids.front());
        EXPECT_EQ(level.by_first_job.at(front).kind, its.kind);
        EXPECT_EQ(its.index, its.kind->index);
        EXPECT_EQ(its.shape_index, its.kind->shape_index);
        kinds.push_back(absl::StrJoin(ids, ","));
      }
      EXPECT_EQ(kinds.size(), owned.kinds.size());
      absl::StrAppend(&text, absl::StrJoin(kinds, " "), ")");
    }
  }
  return text;
}

TEST(JobQueue, SortsByPriorityOwnerAndKind) {
  JobQueue queue;
  for (int64_t id = 4; id >= 1; --id) queue.Put(Job(id, id == 2 ? 8 : 1));
  QueuedJob other = Job(5, 1);
  other.user = "ben";
  other.project = "vision";
  queue.Put(other);
  QueuedJob urgent = Job(6, 1);
  urgent.priority = 5;
  queue.Put(urgent);
  EXPECT_EQ(Index(queue), "5: /anna(6); 0: /anna(1,3,4 2) vision/ben(5)");
  EXPECT_EQ(queue.shape_limit(), 2);
  queue.Remove(JobId{1});
  queue.Remove(JobId{6});
  queue.Remove(JobId{6});
  EXPECT_EQ(Index(queue), "0: /anna(2 3,4) vision/ben(5)");
  EXPECT_EQ(queue.Find(JobId{6}), nullptr);
  EXPECT_EQ(queue.size(), 4);
}

TEST(JobQueue, HeldJobsAreInNoKind) {
  JobQueue queue;
  QueuedJob job = Job(1, 1);
  job.holds = {"waits"};
  queue.Put(job);
  EXPECT_EQ(Index(queue), "");
  EXPECT_EQ(queue.with_holds(), std::set<JobId>{JobId{1}});
  EXPECT_EQ(*queue.Find(JobId{1}), job);
  job.holds.clear();
  queue.Put(job);
  EXPECT_EQ(Index(queue), "0: /anna(1)");
  EXPECT_TRUE(queue.with_holds().empty());
}

TEST(JobQueue, TimesThatAreNearlyEqualMakeOneShape) {
  EXPECT_EQ(RoundUpExpected(0), 0);
  for (int64_t us = 1; us < 40 * kHour; us = us * 5 / 4 + 1) {
    EXPECT_GE(RoundUpExpected(us), us);
    EXPECT_LE(RoundUpExpected(us), us + us / 16);
    EXPECT_EQ(RoundUpExpected(RoundUpExpected(us)), RoundUpExpected(us));
  }
}

TEST(JobQueue, IsTheSameHoweverItCameAbout) {
  std::mt19937_64 random(7);
  JobQueue queue;
  std::map<int64_t, QueuedJob> expected;
  for (int step = 0; step < 3000; ++step) {
    const auto id = static_cast<int64_t>(random() % 60);
    if (random() % 3 == 0) {
      queue.Remove(JobId{id});
      expected.erase(id);
      continue;
    }
    QueuedJob job = Job(id, static_cast<int32_t>(1 + random() % 3));
    job.priority = static_cast<int32_t>(random() % 2);
    job.user = random() % 2 == 0 ? "anna" : "ben";
    if (random() % 5 == 0) job.holds = {"waits"};
    if (random() % 4 == 0) job.array = JobId{id / 10 * 10};
    expected[id] = job;
    queue.Put(std::move(job));
  }
  JobQueue fresh;
  for (const auto& [id, job] : expected) fresh.Put(job);
  EXPECT_EQ(Index(queue), Index(fresh));
  for (int64_t id = 0; id < 60; ++id) queue.Remove(JobId{id});
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.levels().empty());
}

}  // namespace
}  // namespace trainyard::core
