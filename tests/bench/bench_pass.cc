// Measures the time of one scheduling pass over a long queue and a large pool, for several worlds.
//
//   bench_pass [--jobs 100000] [--workers 1000] [--passes 20] [--world "full pool"]
// Prints one line a world: the least and the middle of the milliseconds that a pass takes, and what
// it placed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/core/scheduling/policy.h"

namespace trainyard::core {
namespace {

struct Arguments {
  int jobs = 100'000;
  int workers = 1000;
  int passes = 20;
  std::string world;  // runs only the worlds whose names begin with this
};

struct World {
  std::string name;
  int free_devices = 0;  // of the 8 devices of each worker
  int users = 1;
  int shapes = 1;
  bool has_small = true;  // jobs that fit where a single device is free
  bool may_preempt = false;
  int largest = 8;             // devices of a job
  bool spread = false;         // every other job wants many workers
  bool has_hostnames = false;  // each worker has a label of its own
  bool has_hosts = false;      // workers tell their processors and memory
  bool asks = false;           // every third job asks for some, and every ninth for no device
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--world") {
      arguments.world = argv[i + 1];
      continue;
    }
    int* number = flag == "--jobs"      ? &arguments.jobs
                  : flag == "--workers" ? &arguments.workers
                  : flag == "--passes"  ? &arguments.passes
                                        : nullptr;
    if (number == nullptr || !absl::SimpleAtoi(argv[i + 1], number) || *number < 1) return false;
  }
  return argc % 2 == 1;
}

void FillPool(const Arguments& arguments, const World& world, Pool& pool,
              std::map<JobId, RunningJob>& running) {
  for (int w = 0; w < arguments.workers; ++w) {
    PoolWorker& worker = pool.emplace_back();
    worker.name = absl::StrCat("worker-", 100000 + w);
    worker.traits.labels = {{"rack", absl::StrCat("r", w / 40)}};
    if (world.has_hostnames) worker.traits.labels["host"] = worker.name;
    if (world.has_hosts) {
      worker.host = {128, int64_t{1} << 40};
      worker.device_share = {16, int64_t{1} << 37};
    }
    RunningJob job;
    job.id = JobId{1 + w};
    job.user = absl::StrCat("user-", w % 17);
    job.may_preempt = world.may_preempt;
    if (w % 2 == 0) job.end_us = (w + 1) * kMinute;
    for (int d = 0; d < 8; ++d) {
      PoolDevice& device = worker.devices.emplace_back();
      device.name = absl::StrCat("GPU-0000-", w, "-", d);
      device.type = w % 4 == 3 ? "gtx-1080" : "h200";
      device.memory_bytes = int64_t{80} << 30;
      device.island = d / 4;
      device.share = worker.device_share;
      if (d < world.free_devices) continue;
      device.holder = job.id;
      device.held = device.share;
      job.ranks.push_back(
          {static_cast<int32_t>(job.ranks.size()), worker.name, device.name, device.held});
    }
    job.demand.count = static_cast<int32_t>(job.ranks.size());
    if (!job.ranks.empty()) running[job.id] = job;
  }
}

void FillQueue(const Arguments& arguments, const World& world, JobQueue& queue) {
  uint32_t state = 1;
  const auto next = [&state](uint32_t limit) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % limit;
  };
  for (int i = 0; i < arguments.jobs; ++i) {
    QueuedJob job;
    job.id = JobId{1'000'000 + i};
    const uint32_t user = next(static_cast<uint32_t>(world.users));
    job.user = absl::StrCat("user-", user);
    job.project = absl::StrCat("project-", user % 8);
    job.priority = static_cast<int32_t>(next(3));
    const uint32_t shape = next(static_cast<uint32_t>(world.shapes));
    job.demand.count = world.has_small ? 1 + static_cast<int32_t>(shape) % world.largest : 16384;
    job.demand.spread = world.spread && shape % 2 == 0;
    job.demand.type = shape % 3 == 0 ? "h200" : shape % 3 == 1 ? "gtx-1080" : "";
    if (shape >= 24) job.expected_us = static_cast<int64_t>(shape / 24) * kHour;
    if (shape % 5 == 4) job.demand.labels = {{"rack", absl::StrCat("r", shape % 25)}};
    if (world.asks && shape % 3 == 0)
      job.demand.resources.cpus = 1 + static_cast<int32_t>(shape % 32);
    if (world.asks && shape % 9 == 0) {
      job.demand.is_deviceless = true;
      job.demand.count = 1;
      job.demand.type.clear();
    }
    queue.Put(std::move(job));
  }
}

void Measure(const Arguments& arguments, const World& world) {
  const Config config;
  Pool pool;
  std::map<JobId, RunningJob> running;
  JobQueue queue;
  FillPool(arguments, world, pool, running);
  FillQueue(arguments, world, queue);
  const std::map<UsageKey, UsageRecord> usage;
  const std::map<std::string, QuotaRecord> quotas;
  const std::map<std::string, ReservationRecord> reservations;
  const std::unique_ptr<const Policy> policy = MakePolicy();
  std::vector<double> times;
  Plan plan;
  for (int i = 0; i < arguments.passes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    plan = policy->MakePlan({config, pool, queue, running, usage, quotas, reservations, Now{}});
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  const auto start = std::chrono::steady_clock::now();
  size_t sentences = 0;
  for (const JobId& job : plan.front) {
    sentences +=
        plan.record
            ->Reasons({config, pool, queue, running, usage, quotas, reservations, Now{}}, job)
            .size();
  }
  const std::chrono::duration<double, std::milli> reasons =
      std::chrono::steady_clock::now() - start;
  std::printf(
      "%-34s %7.2f ms least %7.2f ms middle; %zu placed, %zu preempt; "
      "%zu reasons of the front in %.2f ms\n",
      world.name.c_str(), times.front(), times[times.size() / 2], plan.placements.size(),
      plan.preemptions.size(), sentences, reasons.count());
}

}  // namespace
}  // namespace trainyard::core

int main(int argc, char** argv) {
  trainyard::core::Arguments arguments;
  if (!trainyard::core::Parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: bench_pass [--jobs N] [--workers N] [--passes N] [--world NAME]\n");
    return 2;
  }
  const std::vector<trainyard::core::World> worlds = {
      {"full pool, one kind", 0, 1, 1},
      {"full pool, 1000 users", 0, 1000, 24},
      {"full pool, 4000 shapes", 0, 10, 4000},
      {"full pool, victims everywhere", 0, 10, 24, true, true},
      {"full pool, 1000 users, 4000 shapes", 0, 1000, 4000},
      {"half free, nothing fits", 4, 10, 1, false},
      {"half free, one kind", 4, 10, 1},
      {"half free, 24 shapes", 4, 100, 24},
      {"half free, 4000 shapes", 4, 100, 4000},
      {"half free, own labels", 4, 100, 24, true, false, 8, false, true},
      {"hosts, full pool, 4000 shapes", 0, 10, 4000, true, false, 8, false, false, true},
      {"hosts, half free, 4000 shapes", 4, 100, 4000, true, false, 8, false, false, true},
      {"hosts, half free, resources", 4, 100, 4000, true, false, 8, false, false, true, true},
      {"hosts, full pool, resources", 0, 100, 4000, true, false, 8, false, false, true, true},
      {"empty pool, one kind", 8, 10, 1},
      {"empty pool, 192 shapes", 8, 100, 192},
      {"empty pool, gangs of up to 64", 8, 100, 192, true, false, 64},
      {"empty pool, spread", 8, 100, 24, true, false, 8, true},
  };
  for (const trainyard::core::World& world : worlds) {
    if (world.name.rfind(arguments.world, 0) == 0) trainyard::core::Measure(arguments, world);
  }
  return 0;
}
