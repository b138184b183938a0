// Makes up the workloads from a seed.
#include "tests/replay/generators.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainyard::replay {
namespace {

using core::kHour;
using core::kMinute;
using core::kSecond;

// SplitMix64 is small, and the same everywhere.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}

  // Returns a number from `least` up to and including `most`.
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Next() % static_cast<uint64_t>(most - least + 1));
  }
  // Returns whole seconds.
  int64_t Time(int64_t least_us, int64_t most_us) {
    return Between(least_us / kSecond, most_us / kSecond) * kSecond;
  }
  bool Chance(int64_t percent) { return Between(1, 100) <= percent; }

 private:
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

// A job of `devices` that run for `run_us`.
TraceJob Job(int64_t submit_us, std::string user, int32_t devices, int64_t run_us) {
  TraceJob job;
  job.submit_us = submit_us;
  job.user = std::move(user);
  job.demand.count = devices;
  job.work_us = devices * run_us;
  return job;
}

// Each has 8 devices.
std::vector<TraceWorkers> Servers(std::string name, int32_t count) {
  TraceWorkers workers;
  workers.name = std::move(name);
  workers.count = count;
  workers.type = "h200";
  return {workers};
}

// People ask for more time than they need.
int64_t Limit(Dice& dice, int64_t run_us) {
  return run_us * dice.Between(12, 30) / 10 / kSecond * kSecond;
}

void SortBySubmission(Trace& trace) {
  std::stable_sort(trace.jobs.begin(), trace.jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit_us < b.submit_us; });
}

Trace LabDay(uint64_t seed) {
  Dice dice(seed);
  Trace trace;
  trace.name = "lab-day";
  trace.workers = Servers("lab", 1);
  const std::vector<std::string> users = {"anna",  "ben",   "clara", "david", "emma",
                                          "felix", "greta", "hugo",  "ida",   "jonas"};
  // Notebooks and first tries: 12 a day for six people, who wait for the results.
  for (size_t user = 0; user < 6; ++user) {
    for (int i = 0; i < 12; ++i) {
      const int64_t run_us = dice.Time(2 * kMinute, 20 * kMinute);
      TraceJob job = Job(dice.Time(0, 9 * kHour), users[user], 1, run_us);
      job.project = "vision";
      job.priority = 10;
      job.time_limit_us = kHour;
      trace.jobs.push_back(job);
    }
  }
  // Trainings of hours, in the morning mostly; two are elastic.
  for (size_t i = 0; i < 5; ++i) {
    const auto devices = static_cast<int32_t>(dice.Between(2, 4));
    TraceJob job =
        Job(dice.Time(0, 5 * kHour), users[4 + i], devices, dice.Time(90 * kMinute, 210 * kMinute));
    job.project = "language";
    if (i >= 3) job.demand.min_count = 1;
    if (i < 3) job.time_limit_us = Limit(dice, job.work_us / devices);
    job.checkpoint_every_us = 10 * kMinute;
    job.checkpoint_write_us = 20 * kSecond;
    trace.jobs.push_back(job);
  }
  // A sweep, of which at most four jobs run at a time.
  TraceJob sweep = Job(2 * kHour, users[9], 1, 20 * kMinute);
  sweep.project = "language";
  sweep.array_size = 24;
  sweep.array_parallel = 4;
  sweep.time_limit_us = 30 * kMinute;
  sweep.checkpoint_every_us = 5 * kMinute;
  trace.jobs.push_back(sweep);
  // Three gangs need the whole server, at three times of the day.
  for (int64_t hour : {1, 4, 7}) {
    TraceJob gang =
        Job(hour * kHour + dice.Time(0, kHour), users[6 + static_cast<size_t>(hour) % 3], 8,
            dice.Time(25 * kMinute, 50 * kMinute));
    gang.project = "vision";
    gang.time_limit_us = Limit(dice, gang.work_us / 8);
    gang.checkpoint_every_us = 10 * kMinute;
    gang.checkpoint_write_us = 20 * kSecond;
    trace.jobs.push_back(gang);
  }
  SortBySubmission(trace);
  return trace;
}

Trace HostileMix(uint64_t seed) {
  Dice dice(seed);
  Trace trace;
  trace.name = "hostile-mix";
  trace.workers = Servers("server", 4);
  const auto add = [&](TraceJob job) {
    job.time_limit_us = Limit(dice, job.work_us / job.demand.count);
    job.checkpoint_every_us = 10 * kMinute;
    trace.jobs.push_back(std::move(job));
  };
  // One user floods the queue in the first half hour, with jobs whose checkpoints take longer than
  // a stop leaves time for.
  for (int i = 0; i < 600; ++i) {
    TraceJob job =
        Job(dice.Time(0, 30 * kMinute), "flood", 1, dice.Time(5 * kMinute, 20 * kMinute));
    job.checkpoint_write_us = 45 * kSecond;
    add(std::move(job));
  }
  // A stream of small jobs that never ends.
  for (int i = 0; i < 700; ++i) {
    add(Job(dice.Time(0, 12 * kHour), absl::StrCat("small-", dice.Between(1, 6)),
            dice.Chance(80) ? 1 : 2, dice.Time(3 * kMinute, 14 * kMinute)));
  }
  // Gangs that such a stream would starve.
  for (int i = 0; i < 20; ++i) {
    add(Job(dice.Time(30 * kMinute, 11 * kHour), absl::StrCat("wide-", dice.Between(1, 2)),
            dice.Chance(50) ? 8 : 16, dice.Time(20 * kMinute, 40 * kMinute)));
  }
  // Some are urgent.
  for (int i = 0; i < 12; ++i) {
    TraceJob job = Job(dice.Time(30 * kMinute, 11 * kHour), "urgent", 4,
                       dice.Time(15 * kMinute, 30 * kMinute));
    job.priority = 10;
    add(std::move(job));
  }
  SortBySubmission(trace);
  return trace;
}

Trace Large(const GeneratorOptions& options) {
  Dice dice(options.seed);
  Trace trace;
  trace.name = "large";
  trace.workers = Servers("server", options.workers);
  constexpr int32_t kWidths[] = {1, 2, 4, 8, 16, 64};
  constexpr int64_t kPercent[] = {70, 12, 8, 7, 2, 1};
  for (int64_t i = 0; i < options.jobs; ++i) {
    const int64_t draw = dice.Between(1, 100);
    size_t width = 0;
    for (int64_t sum = kPercent[0]; draw > sum; sum += kPercent[width]) ++width;
    const int64_t user = dice.Between(1, 200);
    TraceJob job = Job(dice.Time(0, kMinute), absl::StrFormat("user-%03d", user), kWidths[width],
                       dice.Time(2 * kMinute, 20 * kMinute));
    job.project = absl::StrFormat("project-%02d", user % 20);
    job.priority = dice.Chance(10) ? 10 : 0;
    // Round figures, as people write them.
    job.time_limit_us = dice.Chance(50) ? 30 * kMinute : kHour;
    job.checkpoint_every_us = 10 * kMinute;
    trace.jobs.push_back(std::move(job));
  }
  SortBySubmission(trace);
  return trace;
}

}  // namespace

absl::StatusOr<Trace> GenerateTrace(absl::string_view name, const GeneratorOptions& options) {
  if (name == "lab-day") return LabDay(options.seed);
  if (name == "hostile-mix") return HostileMix(options.seed);
  if (name == "large") return Large(options);
  return absl::NotFoundError(
      absl::StrCat("'", name, "': no such workload; expected lab-day, hostile-mix or large"));
}

}  // namespace trainyard::replay
