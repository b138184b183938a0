// Tests properties of plans in random worlds. Each seed goes through many passes.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/unit/server/core/scheduling/policy_fixture.h"

namespace trainyard::core {
namespace {

class RandomWorld {
 public:
  explicit RandomWorld(uint64_t seed, bool divided = false)
      : random_(seed), world_(""), is_divided_(divided) {
    std::string pool;
    const int workers = 2 + Pick(4);
    for (int w = 0; w < workers; ++w) {
      absl::StrAppend(&pool, w == 0 ? "" : "; ", "w", w, Pick(3) == 0 ? "[disk=ssd]" : "", ":");
      const std::string type = Pick(2) == 0 ? "h200" : "gtx";
      const std::string other = Pick(4) == 0 ? "titan" : type;  // some hosts have two types
      const int devices = 1 + Pick(8);
      for (int d = 0; d < devices; ++d) {
        absl::StrAppend(&pool, d == 4 ? " |" : "", " ", d % 3 == 2 ? other : type,
                        Pick(9) == 0 ? "@night" : "", Pick(12) == 0 ? "!" : "",
                        Pick(3) == 0 ? "" : "^", "*", 40 * (1 + Pick(2)));
      }
    }
    world_.pool = PoolOf(pool);
    if (divided) {
      world_.DivideHosts(16);
      world_.quotas["user:ben"] = {.subject = "user:ben", .devices = 6, .held = {24, 0}};
    }
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
      demand.one_host = Pick(3) == 0;
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
      if (is_divided_) AskForResources(job);
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
  void AskForResources(QueuedJob& job) {
    Demand& demand = job.demand;
    if (Pick(3) == 0) {
      demand = {};
      demand.is_deviceless = true;
      job.reservation.clear();
    }
    if (Pick(2) == 0) demand.resources.cpus = 1 + Pick(8);
    if (Pick(3) == 0) demand.resources.memory_bytes = int64_t{1 + Pick(8)} << 30;
  }

  int32_t Pick(int32_t limit) {
    return static_cast<int32_t>(random_() % static_cast<uint64_t>(limit));
  }

  std::mt19937_64 random_;
  World world_;
  const bool is_divided_;
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
      EXPECT_LT(running.priority, job.priority + (running.guest ? 1 : 0));
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

std::set<std::string> WorkersOf(const std::vector<DeviceKey>& devices) {
  std::set<std::string> workers;
  for (const DeviceKey& device : devices) workers.insert(device.first);
  return workers;
}

// Gangs of one host hold devices on one worker, and are promised them there. Returns the number of
// preemptions for such gangs.
int CheckOneHost(const World& world, const Plan& plan) {
  int preemptions = 0;
  for (const Preemption& preemption : plan.preemptions) {
    for (const Victim& victim : preemption.victims) {
      if (!world.running.at(victim.job).demand.one_host) continue;
      EXPECT_LE(WorkersOf(victim.keep).size(), 1u) << victim.job.value;
    }
    const Demand& demand = world.queue.Find(preemption.job)->demand;
    if (!demand.one_host || demand.count == 1) continue;
    ++preemptions;
    EXPECT_EQ(WorkersOf(preemption.devices).size(), 1u) << preemption.job.value;
  }
  for (const Growth& growth : plan.growths) {
    EXPECT_FALSE(world.running.at(growth.job).demand.one_host) << growth.job.value;
  }
  for (const auto& [id, job] : world.running) {
    if (!job.demand.one_host) continue;
    for (const RankPlacement& rank : job.ranks) {
      EXPECT_EQ(rank.worker, job.ranks.front().worker) << id.value;
    }
  }
  return preemptions;
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
  int for_one_host = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomWorld random(seed);
    World& world = random.world();
    for (int pass = 0; pass < 60; ++pass) {
      random.SubmitSome();
      const Plan plan = world.MakePlan(GetParam());
      EXPECT_EQ(Text(plan), Text(world.MakePlan(GetParam()))) << "the same input, the same plan";
      CheckPreemptions(world, plan);
      for_one_host += CheckOneHost(world, plan);
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
  EXPECT_EQ(for_one_host > 3, GetParam().preemption && GetParam().priorities) << for_one_host;
}

HostAmount HeldOf(const PoolWorker& worker) {
  HostAmount held;
  for (const PoolDevice& device : worker.devices) {
    if (device.holder != JobId{}) held += device.held;
  }
  for (const PoolSeat& seat : worker.seats) held += seat.held;
  return held;
}

TEST_P(PolicyProperties, HostsAreNeverOvercommitted) {
  int seats = 0;
  int larger = 0;
  int preempted = 0;
  int for_one_host = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomWorld random(seed, /*divided=*/true);
    World& world = random.world();
    for (int pass = 0; pass < 60; ++pass) {
      random.SubmitSome();
      const Plan plan = world.MakePlan(GetParam());
      EXPECT_EQ(Text(plan), Text(world.MakePlan(GetParam()))) << "the same input, the same plan";
      for_one_host += CheckOneHost(world, plan);
      world.Carry(plan);
      if (testing::Test::HasFailure()) return;
      int32_t of_ben = 0;
      for (const PoolWorker& worker : world.pool) {
        EXPECT_TRUE(HeldOf(worker).Fits(worker.host)) << worker.name;
        seats += static_cast<int>(worker.seats.size());
      }
      for (const auto& [id, job] : world.running) {
        if (job.demand.resources.cpus > 0 && !job.demand.is_deviceless) ++larger;
        if (job.user != "ben") continue;
        for (const RankPlacement& rank : job.ranks) of_ben += rank.held.cpus;
      }
      EXPECT_LE(of_ben, 24);
      for (const JobId id : plan.front) {
        if (world.queue.Find(id) == nullptr) continue;
        EXPECT_FALSE(plan.record->Reasons(world.Input(), id).empty()) << id.value;
      }
      preempted += static_cast<int>(plan.preemptions.size());
      random.Pass();
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(seats, 200);
  EXPECT_GT(larger, 100);
  EXPECT_EQ(preempted > 5, GetParam().preemption && GetParam().priorities);
  EXPECT_EQ(for_one_host > 1, GetParam().preemption && GetParam().priorities) << for_one_host;
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

// A gang of one host stops somebody if and only if some host would hold it then. It stops only
// those of that host, of whom none could stay.
TEST(PolicyProperties, VictimsForOneHostAreOfOneHostAndNeverMoreThanNeeded) {
  int seen = 0;
  int none = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const auto pick = [&random](uint64_t limit) { return static_cast<int64_t>(random() % limit); };
    std::string pool;
    int64_t jobs = 0;
    for (int64_t w = 0, workers = 1 + pick(4); w < workers; ++w) {
      absl::StrAppend(&pool, w == 0 ? "" : "; ", "w", w, ": ", 1 + pick(2), "xcpu");
      for (int64_t i = pick(4); i > 0; --i) {
        absl::StrAppend(&pool, " ", 1 + pick(3), "xcpu=", ++jobs);
      }
      // Some jobs stretch over two workers.
      if (w > 0 && jobs > 0 && pick(2) == 0) absl::StrAppend(&pool, " cpu=", jobs);
    }
    World world(pool);
    for (int64_t id = 1; id <= jobs; ++id) {
      RunningJob& job = world.Run(id);
      job.at_risk_us = (1 + pick(9)) * kMinute;
      job.may_preempt = pick(5) != 0;
    }
    QueuedJob urgent = Job(100, static_cast<int32_t>(3 + pick(5)));
    urgent.priority = 1;
    urgent.demand.one_host = true;
    world.Submit(urgent);
    const auto need = static_cast<size_t>(urgent.demand.count);
    const Plan plan = world.MakePlan();
    if (!plan.placements.empty()) continue;
    // Returns the devices of a worker that are free once these jobs have gone.
    const auto free_without = [](const PoolWorker& worker, const auto& goes) {
      size_t free = 0;
      for (const PoolDevice& device : worker.devices) {
        free += device.holder == JobId{} || goes(device.holder);
      }
      return free;
    };
    const bool could =
        std::any_of(world.pool.begin(), world.pool.end(), [&](const PoolWorker& worker) {
          return free_without(worker, [&](JobId id) { return world.running[id].may_preempt; }) >=
                 need;
        });
    ASSERT_EQ(plan.preemptions.size(), could ? 1u : 0u) << pool;
    if (!could) {
      ++none;
      continue;
    }
    ++seen;
    const Preemption& preemption = plan.preemptions[0];
    ASSERT_EQ(WorkersOf(preemption.devices).size(), 1u) << pool;
    for (const PoolWorker& worker : world.pool) {
      if (worker.name != preemption.devices[0].first) continue;
      std::set<JobId> victims;
      for (const Victim& victim : preemption.victims) victims.insert(victim.job);
      EXPECT_GE(free_without(worker, [&](JobId id) { return victims.count(id) > 0; }), need);
      for (const JobId stays : victims) {
        EXPECT_LT(
            free_without(worker, [&](JobId id) { return id != stays && victims.count(id) > 0; }),
            need)
            << pool;
      }
    }
  }
  EXPECT_GT(seen, 50);
  EXPECT_GT(none, 20);
}

}  // namespace
}  // namespace trainyard::core
