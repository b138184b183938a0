// Tests properties of plans in random worlds. Each seed goes through many passes.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

class RandomWorld {
 public:
  explicit RandomWorld(uint64_t seed) : random_(seed), world_("") {
    std::string pool;
    const int workers = 2 + Pick(4);
    for (int w = 0; w < workers; ++w) {
      absl::StrAppend(&pool, w == 0 ? "" : "; ", "w", w, Pick(3) == 0 ? "[disk=ssd]" : "", ":");
      const std::string type = Pick(2) == 0 ? "h200" : "gtx";
      const int devices = 1 + Pick(8);
      for (int d = 0; d < devices; ++d) {
        absl::StrAppend(&pool, d == 4 ? " |" : "", " ", type, Pick(9) == 0 ? "@night" : "",
                        Pick(12) == 0 ? "!" : "", Pick(3) == 0 ? "" : "^", "*", 40 * (1 + Pick(2)));
      }
    }
    world_.pool = PoolOf(pool);
    world_.quotas["user:*"] = {.subject = "user:*", .devices = 6};
    world_.quotas["project:vision"] = {.subject = "project:vision", .devices = 9, .weight = 3};
  }

  World& world() { return world_; }

  void SubmitSome() {
    for (int i = Pick(5); i > 0; --i) {
      QueuedJob job = Job(next_, 1 + Pick(6));
      Demand& demand = job.demand;
      if (Pick(3) == 0) demand.type = Pick(2) == 0 ? "h200" : "gtx";
      if (Pick(4) == 0) demand.min_count = 1 + Pick(demand.count);
      demand.mixed = Pick(4) == 0;
      demand.spread = Pick(4) == 0;
      if (Pick(5) == 0) demand.memory_bytes = int64_t{80} << 30;
      if (Pick(6) == 0) demand.labels = {{"disk", "ssd"}};
      demand.bf16 = Pick(5) == 0;
      if (Pick(4) == 0) job.reservations = {"night"};
      if (Pick(12) == 0) job.reservation = "night";
      job.priority = Pick(3);
      job.user = Pick(2) == 0 ? "anna" : "ben";
      job.project = Pick(2) == 0 ? "vision" : "";
      if (Pick(2) == 0) job.expected_us = (1 + Pick(90)) * kMinute;
      if (Pick(8) == 0) job.holds = {"waits"};
      if (Pick(6) == 0) {
        job.array = JobId{next_ / 4 * 4};
        job.array_parallel = 1;
      }
      world_.Submit(job);
      ++next_;
    }
  }

  // Lets time pass: jobs end, jobs that were asked to stop do so, and running jobs become
  // preemptible.
  void Pass() {
    world_.now.uptime_us += 10 * kMinute;
    world_.now.wall_us += 10 * kMinute;
    const std::map<JobId, RunningJob> before = world_.running;
    for (const auto& [id, job] : before) {
      if (job.stops) {
        if (Pick(2) == 0) world_.End(id, /*again=*/true);
      } else if (Pick(5) == 0) {
        world_.End(id);
      }
    }
    for (auto& [id, job] : world_.running) {
      job.may_preempt = !job.stops && Pick(4) != 0;
      job.at_risk_us = Pick(20) * kMinute;
    }
  }

 private:
  int32_t Pick(int32_t limit) {
    return static_cast<int32_t>(random_() % static_cast<uint64_t>(limit));
  }

  std::mt19937_64 random_;
  World world_;
  int64_t next_ = 1;
};

std::set<DeviceKey> HeldBy(const World& world, JobId job) {
  std::set<DeviceKey> held;
  for (const RankPlacement& rank : world.running.at(job).ranks) {
    held.insert({rank.worker, rank.device});
  }
  return held;
}

// Every victim has a lower priority and gives up a device that the gang gets. No device is promised
// twice, and the devices that a victim keeps suffice for it.
void CheckPreemptions(const World& world, const Plan& plan) {
  std::set<DeviceKey> promised;
  for (const GangPlacement& placement : plan.placements) {
    for (const RankPlacement& rank : placement.ranks) promised.insert({rank.worker, rank.device});
  }
  for (const Preemption& preemption : plan.preemptions) {
    const QueuedJob& job = *world.queue.Find(preemption.job);
    EXPECT_FALSE(preemption.victims.empty());
    EXPECT_GE(static_cast<int32_t>(preemption.devices.size()), job.demand.least());
    EXPECT_LE(static_cast<int32_t>(preemption.devices.size()), job.demand.count);
    for (const DeviceKey& device : preemption.devices) {
      EXPECT_TRUE(promised.insert(device).second) << device.first << ":" << device.second;
    }
    for (const Victim& victim : preemption.victims) {
      const RunningJob& running = world.running.at(victim.job);
      EXPECT_TRUE(running.may_preempt);
      EXPECT_LT(running.priority, job.priority);
      const std::set<DeviceKey> held = HeldBy(world, victim.job);
      int gives = 0;
      for (const DeviceKey& device : preemption.devices) gives += held.count(device) > 0;
      EXPECT_GT(gives, 0);
      if (victim.keep.empty()) continue;
      EXPECT_GE(static_cast<int32_t>(victim.keep.size()), running.demand.least());
      EXPECT_EQ(victim.keep.size() + static_cast<size_t>(gives), held.size());
      for (const DeviceKey& device : victim.keep) {
        EXPECT_TRUE(held.count(device) > 0);
        EXPECT_TRUE(promised.insert(device).second);
      }
    }
  }
}

void CheckQuotas(const World& world) {
  std::map<std::string, int32_t> users;
  int32_t vision = 0;
  for (const auto& [id, job] : world.running) {
    const auto devices = static_cast<int32_t>(job.ranks.size());
    users[job.user] += devices;
    if (job.project == "vision") vision += devices;
  }
  for (const auto& [user, devices] : users) EXPECT_LE(devices, 6) << user;
  EXPECT_LE(vision, 9);
}

class PolicyProperties : public testing::TestWithParam<PolicyOptions> {};

TEST_P(PolicyProperties, HoldInRandomWorlds) {
  int placed = 0;
  int preempted = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomWorld random(seed);
    World& world = random.world();
    for (int pass = 0; pass < 60; ++pass) {
      random.SubmitSome();
      const Plan plan = world.MakePlan(GetParam());
      EXPECT_EQ(Text(plan), Text(world.MakePlan(GetParam()))) << "the same input, the same plan";
      CheckPreemptions(world, plan);
      world.Carry(plan);  // checks the placements
      if (testing::Test::HasFailure()) return;
      CheckQuotas(world);
      for (size_t i = 0; i < plan.front.size(); ++i) {
        const JobId id = plan.front[i];
        if (world.queue.Find(id) == nullptr) continue;
        EXPECT_FALSE(plan.record->Reasons(world.Input(), id).empty()) << id.value;
        if (i > 2) continue;  // the explanation takes long to compute
        const Explanation explanation = plan.record->Explain(world.Input(), *world.queue.Find(id));
        EXPECT_TRUE(explanation.start_in_us.has_value() || !explanation.start_basis.empty());
      }
      placed += static_cast<int>(plan.placements.size());
      preempted += static_cast<int>(plan.preemptions.size());
      random.Pass();
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(placed, 500);
  EXPECT_EQ(preempted > 10, GetParam().preemption && GetParam().priorities);
}

INSTANTIATE_TEST_SUITE_P(All, PolicyProperties,
                         testing::Values(PolicyOptions{}, PolicyOptions{.priorities = false},
                                         PolicyOptions{.fair_share = false},
                                         PolicyOptions{.backfill = false},
                                         PolicyOptions{.preemption = false},
                                         PolicyOptions{.elastic = false}));

// Without one of its victims the gang would not fit: too few devices are free or given up by the
// other victims.
TEST(PolicyProperties, VictimsAreNeverMoreThanNeeded) {
  int seen = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    std::string pool = "a:";
    const int jobs = 2 + static_cast<int>(random() % 6);
    for (int id = 1; id <= jobs; ++id) {
      absl::StrAppend(&pool, " ", 1 + random() % 4, "xcpu=", id);
    }
    absl::StrAppend(&pool, " ", 1 + random() % 3, "xcpu");
    World world(pool);
    for (int id = 1; id <= jobs; ++id) {
      world.Run(id).at_risk_us = static_cast<int64_t>(random() % 9) * kMinute;
    }
    QueuedJob urgent = Job(100, 4 + static_cast<int32_t>(random() % 8));
    urgent.priority = 1;
    world.Submit(urgent);
    const Plan plan = world.MakePlan();
    if (plan.preemptions.empty()) continue;
    ++seen;
    size_t free = 0;
    for (const PoolDevice& device : world.pool[0].devices) free += device.holder == JobId{};
    size_t given = 0;
    for (const Victim& victim : plan.preemptions[0].victims) {
      given += world.running.at(victim.job).ranks.size();
    }
    const auto need = static_cast<size_t>(urgent.demand.count);
    EXPECT_GE(free + given, need) << pool;
    for (const Victim& victim : plan.preemptions[0].victims) {
      EXPECT_LT(free + given - world.running.at(victim.job).ranks.size(), need) << pool;
    }
  }
  EXPECT_GT(seen, 100);
}

}  // namespace
}  // namespace trainyard::core
