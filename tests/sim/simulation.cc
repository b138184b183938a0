// Builds a pool, lets it run through its faults, and waits until it is quiet.
#include "tests/sim/simulation.h"

#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "tests/sim/checkers.h"
#include "tests/sim/daemon.h"
#include "tests/sim/disk.h"
#include "tests/sim/faults.h"
#include "tests/sim/host.h"
#include "tests/sim/planted.h"
#include "tests/sim/server.h"
#include "tests/sim/trainers.h"
#include "tests/sim/transport.h"
#include "tests/sim/users.h"

namespace trainyard::sim {
namespace {

constexpr Time kLookEvery = 2 * kSecond;
// After the faults have stopped, all jobs end within this: sixty jobs of up to half an hour, one
// after the other, on a pool of one device.
constexpr Time kQuietBound = 24 * kHour;
// The pool must be at rest this long after its last job.
constexpr int64_t kEventsMax = 20'000'000;

class Pool {
 public:
  Pool(const Options& options, bool tell)
      : options_(options),
        world_(options.seed, tell),
        transport_(world_, options_),
        disk_(world_),
        trainers_(world_),
        server_(world_, options_, transport_, disk_, DrawClock()),
        users_(world_, options_, transport_, server_, trainers_, hosts_),
        faults_(world_, options_, transport_, server_, disk_, trainers_, hosts_),
        checkers_(world_, options_, server_, disk_, trainers_, transport_, faults_, hosts_) {
    world_.Say("seed", options_.Describe());
    MakeHosts();
    Connect();
  }

  Result Run() {
    server_.Start();
    for (const auto& host : hosts_) {
      world_.After(world_.random().Below(5 * kSecond), [&host] { host->daemon->Start(); });
    }
    users_.Begin();
    faults_.Begin();
    Look();
    RunUntil(options_.faults_end);
    world_.Say("seed", "the faults stop");
    users_.BeCalm();
    faults_.Repair();
    std::string why;
    const Time limit = world_.now() + kQuietBound;
    bool is_quiet = false;
    while (!world_.violated() && !is_quiet && world_.now() < limit) {
      RunUntil(world_.now() + 10 * kSecond);
      is_quiet = checkers_.IsQuiet(&why);
    }
    if (!is_quiet) world_.Violate("when faults stop, all jobs end", why);
    Result result;
    result.is_broken = world_.violated();
    result.rule = world_.rule();
    result.what = world_.what();
    result.hash = world_.hash();
    result.hours_us = world_.now();
    result.events = world_.events();
    result.jobs = static_cast<int64_t>(disk_.state().jobs.size());
    result.attempts = static_cast<int64_t>(disk_.state().attempts.size());
    if (options_.long_job > 0 && !disk_.state().jobs.empty()) {
      const core::JobRecord& job = disk_.state().jobs.begin()->second;
      result.useful =
          static_cast<double>(options_.long_job) / static_cast<double>(job.end_us - job.create_us);
    }
    return result;
  }

 private:
  HostClock DrawClock() {
    Random& random = world_.random();
    HostClock clock;
    clock.uptime_at_boot = random.Between(1, 100'000) * kSecond;
    clock.drift_ppm = random.Between(-options_.drift_ppm, options_.drift_ppm);
    clock.wall_offset = random.Between(-options_.skew, options_.skew);
    return clock;
  }

  void MakeHosts() {
    for (int i = 0; i < options_.hosts; ++i) {
      auto host = std::make_unique<Host>(world_, trainers_, i, absl::StrCat("lab-", i));
      host->clock = DrawClock();
      const std::string type = options_.two_types && world_.random().Chance(400) ? "h200" : "cpu";
      const int64_t devices = world_.random().Between(1, options_.devices_max);
      for (int64_t d = 0; d < devices; ++d) {
        MachineDevice device;
        device.name = absl::StrCat(type, "-", d);
        device.type = type;
        host->devices.push_back(std::move(device));
      }
      if (options_.resources) {
        Random resources(options_.seed * 31 + static_cast<uint64_t>(i));
        const auto cpus = static_cast<int32_t>(devices + resources.Between(0, 4));
        host->resources = {cpus, cpus * kSimGiB};
      }
      host->daemon =
          std::make_unique<Daemon>(world_, options_, transport_, server_, *host, trainers_);
      hosts_.push_back(std::move(host));
    }
  }

  Host& HostOf(int number) { return *hosts_[static_cast<size_t>(number)]; }

  void Connect() {
    trainers_.directory_of = [this](int host, AttemptId attempt) {
      return HostOf(host).FindDirectory(attempt);
    };
    trainers_.on_change = [this](int host, AttemptId attempt) { HostOf(host).Touch(attempt); };
    trainers_.is_disk_full = [this](int host) { return HostOf(host).is_disk_full; };
    trainers_.is_device_bad = [this](int host, const std::string& device) {
      const MachineDevice* found = HostOf(host).FindDevice(device);
      return found != nullptr && found->is_bad;
    };
    trainers_.on_start = [this](const RankProcess& process) { checkers_.ProcessStarts(process); };
    trainers_.on_exit = [this](const RankProcess& process, const supervisor::RankEnd& end) {
      checkers_.ProcessEnds(process, end);
      Host& host = HostOf(process.start.host);
      if (SupervisorProcess* supervisor = host.SupervisorOf(process.start.attempt)) {
        supervisor->RankExited(end);
      }
      host.Touch(process.start.attempt);
    };
    disk_.on_commit = [this](const core::Snapshot& before, const core::Delta& delta) {
      checkers_.Committed(before, delta);
    };
    server_.on_start = [this] { checkers_.Started(); };
    users_.on_acknowledged = [this](const Order& order) { checkers_.Acknowledged(order); };
    users_.on_deleted = [this](JobId job) { checkers_.Deleted(job); };
    users_.on_capacity_change = [this] { faults_.Note(); };
  }

  void Look() {
    checkers_.Look();
    world_.After(kLookEvery, [this] { Look(); });
  }

  void RunUntil(Time limit) {
    while (!world_.violated() && world_.Step(limit)) {
      if (world_.events() > kEventsMax) {
        world_.Violate("the pool comes to rest", "far too much happens");
      }
    }
  }

  const Options options_;
  World world_;
  Transport transport_;
  Disk disk_;
  Trainers trainers_;
  Server server_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Users users_;
  Faults faults_;
  Checkers checkers_;
};

// If a check of the code under test fails, it ends the process. The seed is printed before.
uint64_t seed_at_work = 0;

void TellSeed(int) {
  std::fprintf(stderr, "this was seed %llu of the simulator\n",
               static_cast<unsigned long long>(seed_at_work));
}

}  // namespace

namespace {

Result SimulateOptions(const Options& options, absl::string_view bug, bool tell) {
  // The daemon logs everything that it cannot do. In the simulator that happens all the time.
  static std::once_flag quiet;
  std::call_once(quiet, [] { InitLog("sim", LogLevel::kError, LogFormat::kText); });
  planted_bug = {bug.data(), bug.size()};
  seed_at_work = options.seed;
  std::signal(SIGABRT, TellSeed);
  const auto restore = absl::MakeCleanup([] { planted_bug = {}; });
  return Pool(options, tell).Run();
}

}  // namespace

Result Simulate(uint64_t seed, absl::string_view bug, bool tell) {
  return SimulateOptions(DrawOptions(seed), bug, tell);
}

Result SimulateLongJob(uint64_t seed) {
  return SimulateOptions(LongJobOptions(seed), /*bug=*/"", /*tell=*/false);
}

Result SimulateTwice(uint64_t seed) {
  Result result = Simulate(seed);
  if (result.is_broken) return result;
  const Result again = Simulate(seed);
  if (again.hash != result.hash || again.events != result.events) {
    result.is_broken = true;
    result.rule = "a seed tells one story";
    result.what = absl::StrCat("hash ", absl::Hex(result.hash), " and ", absl::Hex(again.hash));
  }
  return result;
}

}  // namespace trainyard::sim
