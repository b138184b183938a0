// Provides a small world for tests of the policy: a pool written as text, jobs, and the effects of
// a plan.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/core/scheduling/policy.h"

namespace trainyard::core {

// Reads a device from a word without the device's name: "h200=7", "cpu!".
inline PoolDevice DeviceOf(absl::string_view word) {
  constexpr char kMarks[] = "=~@*^!";
  PoolDevice device;
  size_t end = word.find_first_of(kMarks);
  device.type = std::string(word.substr(0, end));
  while (end < word.size()) {
    const char mark = word[end];
    const size_t next = std::min(word.find_first_of(kMarks, end + 1), word.size());
    const std::string value(word.substr(end + 1, next - end - 1));
    int64_t number = 0;
    (void)absl::SimpleAtoi(value, &number);
    if (mark == '=') device.holder = JobId{number};
    if (mark == '~') device.claim = JobId{number};
    if (mark == '@') device.reservation = value;
    if (mark == '*') device.memory_bytes = number << 30;
    if (mark == '^') device.bf16 = true;
    if (mark == '!') {
      device.usable = false;
      device.why_not = "is quarantined: Xid 79";
    }
    end = next;
  }
  return device;
}

// Reads a worker without its devices: "a[disk=ssd]", "b-".
inline PoolWorker WorkerOf(std::string name) {
  PoolWorker worker;
  if (const size_t bracket = name.find('['); bracket != std::string::npos) {
    for (const absl::string_view label :
         absl::StrSplit(name.substr(bracket + 1, name.size() - bracket - 2), ',')) {
      worker.traits.labels.insert(absl::StrSplit(label, absl::MaxSplits('=', 1)));
    }
    name.resize(bracket);
  }
  if (name.back() == '-') {
    name.pop_back();
    worker.takes_ranks = false;
    worker.why_not = "is cordoned";
  }
  worker.name = std::move(name);
  return worker;
}

// Reads a pool. Workers are separated by ";" and their devices by blanks; "|" begins an island:
//   "a[disk=ssd]: h200 h200=7 | h200~5; b-: cpu cpu!"
// Marks may follow the type of a device: "=7" is held by jobs/7, "~5" is claimed for jobs/5,
// "@night" belongs to that reservation, "*80" has 80 GiB of memory, "^" computes in bf16, and "!"
// is unfit. "b-" takes no ranks. "4xh200" means four such devices.
inline Pool PoolOf(const std::string& text) {
  Pool pool;
  for (const absl::string_view part : absl::StrSplit(text, ';', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> halves =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    PoolWorker worker = WorkerOf(std::string(absl::StripAsciiWhitespace(halves.first)));
    int32_t island = 0;
    for (absl::string_view word : absl::StrSplit(halves.second, ' ', absl::SkipEmpty())) {
      if (word == "|") {
        ++island;
        continue;
      }
      int times = 1;
      if (const size_t x = word.find('x');
          x != word.npos && absl::SimpleAtoi(word.substr(0, x), &times)) {
        word.remove_prefix(x + 1);
      } else {
        times = 1;
      }
      for (int i = 0; i < times; ++i) {
        PoolDevice device = DeviceOf(word);
        device.island = island;
        device.name = absl::StrCat(device.type, "-", worker.devices.size());
        worker.devices.push_back(std::move(device));
      }
    }
    pool.push_back(std::move(worker));
  }
  return pool;
}

inline QueuedJob Job(int64_t id, int32_t count, const std::string& type = "") {
  QueuedJob job;
  job.id = JobId{id};
  job.demand.count = count;
  job.demand.type = type;
  job.user = "anna";
  job.preemptible = false;  // guests have their own tests
  return job;
}

inline std::string Text(const std::vector<RankPlacement>& ranks) {
  return absl::StrJoin(ranks, " ", [](std::string* out, const RankPlacement& rank) {
    absl::StrAppend(out, rank.worker, ":", rank.device);
  });
}

inline std::string Text(const std::vector<DeviceKey>& devices) {
  return absl::StrJoin(devices, " ", [](std::string* out, const DeviceKey& device) {
    absl::StrAppend(out, device.first, ":", device.second);
  });
}

// Returns "place 2 on a:cpu-0; preempt for 3 on a:cpu-1 a:cpu-2, stop 1 (keeps a:cpu-3); grow 4 to
// ...".
inline std::string Text(const Plan& plan) {
  std::vector<std::string> parts;
  for (const GangPlacement& placement : plan.placements) {
    parts.push_back(absl::StrCat("place ", placement.job.value, " on ", Text(placement.ranks)));
  }
  for (const Preemption& preemption : plan.preemptions) {
    std::string text = absl::StrCat("preempt for ", preemption.job.value, " on ",
                                    Text(preemption.devices), ", stop");
    for (const Victim& victim : preemption.victims) {
      absl::StrAppend(&text, " ", victim.job.value);
      if (!victim.keep.empty()) absl::StrAppend(&text, " (keeps ", Text(victim.keep), ")");
    }
    parts.push_back(text);
  }
  for (const Growth& growth : plan.growths) {
    parts.push_back(absl::StrCat("grow ", growth.job.value, " to ", Text(growth.devices)));
  }
  return absl::StrJoin(parts, "; ");
}

// Holds everything that a pass reads, and applies the simplest effects that a plan can have.
class World {
 public:
  explicit World(const std::string& pool_text) : pool(PoolOf(pool_text)) {
    now = {.wall_us = 1'000'000 * kHour, .uptime_us = 1000 * kHour};
  }

  PassInput Input() const {
    return {config, pool, queue, running, usage, quotas, reservations, now, &speeds, accept};
  }
  Plan MakePlan(const PolicyOptions& options = {}) const {
    return MakePolicy(options)->MakePlan(Input());
  }

  void Submit(QueuedJob job) {
    if (job.waiting_since_us == 0) job.waiting_since_us = now.wall_us;
    queue.Put(std::move(job));
  }

  // Adds a job that holds the devices that the text of the pool gives to it.
  RunningJob& Run(int64_t id, std::optional<int64_t> end_in_us = std::nullopt) {
    RunningJob& job = running[JobId{id}];
    job.id = JobId{id};
    job.user = "anna";
    job.since_us = now.uptime_us - kHour;
    job.at_risk_us = kMinute;
    job.may_preempt = true;
    if (end_in_us.has_value()) job.end_us = now.uptime_us + *end_in_us;
    for (const PoolWorker& worker : pool) {
      for (const PoolDevice& device : worker.devices) {
        if (device.holder != job.id) continue;
        job.ranks.push_back({static_cast<int32_t>(job.ranks.size()), worker.name, device.name});
      }
    }
    job.demand.count = static_cast<int32_t>(job.ranks.size());
    return job;
  }

  // Checks each placement, then carries it out.
  void Carry(const Plan& plan) {
    for (const GangPlacement& placement : plan.placements) {
      const QueuedJob* queued = queue.Find(placement.job);
      ASSERT_NE(queued, nullptr);
      const absl::Status status = CheckPlacement(pool, *queued, placement.ranks);
      ASSERT_TRUE(status.ok()) << status << " for job " << placement.job.value;
      Hold(pool, placement.job, placement.ranks);
      RunningJob& job = running[placement.job];
      job = {};
      job.id = placement.job;
      job.array = queued->array;
      job.demand = queued->demand;
      job.priority = queued->priority;
      job.user = queued->user;
      job.project = queued->project;
      job.ranks = placement.ranks;
      job.since_us = now.uptime_us;
      job.guest = placement.guest_of != JobId{};
      if (queued->expected_us > 0) job.end_us = now.uptime_us + queued->expected_us;
      job.reservations = queued->reservations;
      job.reservation = queued->reservation;
      Claim(placement.job, {});
      queue.Remove(placement.job);
    }
    for (const Preemption& preemption : plan.preemptions) {
      Claim(preemption.job, preemption.devices);
      for (const Victim& victim : preemption.victims) {
        running.at(victim.job).stops = true;
        if (!victim.keep.empty()) Claim(victim.job, victim.keep);
      }
    }
    for (const Growth& growth : plan.growths) {
      Claim(growth.job, growth.devices);
      running.at(growth.job).stops = true;
    }
  }

  // Gives each worker a host with so many processors and as many GiB, of which its devices have
  // equal shares.
  void DivideHosts(int32_t cpus) {
    for (PoolWorker& worker : pool) {
      worker.host = {cpus, int64_t{cpus} << 30};
      const int32_t parts = std::max(1, static_cast<int32_t>(worker.devices.size()));
      worker.device_share = {cpus / parts, worker.host.memory_bytes / parts};
      for (PoolDevice& device : worker.devices) {
        device.share = worker.device_share;
        if (device.holder != JobId{}) device.held = device.share;
      }
    }
    for (auto& [id, job] : running) {
      for (RankPlacement& rank : job.ranks) {
        for (const PoolWorker& worker : pool) {
          if (worker.name == rank.worker) rank.held = worker.device_share;
        }
      }
    }
  }

  // Makes the job keep these devices claimed, and no others.
  void Claim(JobId job, const std::vector<DeviceKey>& devices) {
    const std::set<DeviceKey> claimed(devices.begin(), devices.end());
    for (PoolWorker& worker : pool) {
      for (PoolDevice& device : worker.devices) {
        if (device.claim == job) device.claim = JobId{};
        if (claimed.count({worker.name, device.name}) > 0) device.claim = job;
      }
      std::erase(worker.claimed_seats, job);
      if (claimed.count({worker.name, SeatName(job)}) > 0) worker.claimed_seats.push_back(job);
    }
  }

  // Makes the job give its devices back. With `again`, it waits once more.
  void End(JobId id, bool again = false) {
    for (PoolWorker& worker : pool) {
      for (PoolDevice& device : worker.devices) {
        if (device.holder == id) device.holder = JobId{};
      }
      std::erase_if(worker.seats, [id](const PoolSeat& seat) { return seat.holder == id; });
    }
    const RunningJob job = running.at(id);
    running.erase(id);
    if (!again) return;
    QueuedJob queued;
    queued.id = id;
    queued.array = job.array;
    queued.demand = job.demand;
    queued.priority = job.priority;
    queued.user = job.user;
    queued.project = job.project;
    queued.reservations = job.reservations;
    queued.reservation = job.reservation;
    Submit(queued);
  }

  Config config;
  Pool pool;
  JobQueue queue;
  std::map<JobId, RunningJob> running;
  std::map<UsageKey, UsageRecord> usage;
  std::map<std::string, QuotaRecord> quotas;
  std::map<std::string, ReservationRecord> reservations;
  Now now;
  Speeds speeds;
  const AcceptChange* accept = nullptr;
};

}  // namespace trainyard::core
