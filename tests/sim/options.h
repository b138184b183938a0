// The options that one seed draws: how large the pool is, how it is used, and what goes wrong in
// it.
#pragma once

#include <cstdint>
#include <string>

#include "server/core/lifecycle/config.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

// The unit of memory of a host.
inline constexpr int64_t kSimGiB = int64_t{1} << 30;

// The mean time between two faults of a kind. 0 means never.
struct FaultRates {
  Time server_crash = 0;
  Time server_power_loss = 0;
  Time server_full_disk = 0;
  Time worker_crash = 0;
  Time worker_hang = 0;
  Time host_reboot = 0;
  Time supervisor_crash = 0;
  Time partition = 0;
  Time flapping = 0;
  Time deafness = 0;  // a host is heard but hears nothing, or the reverse
  Time clock_jump = 0;
  Time device_fails = 0;
  Time foreign_use = 0;
  Time rank_crash = 0;
  Time rank_hang = 0;
  Time host_full_disk = 0;
  Time checkpoint_damage = 0;
  Time worker_leave = 0;  // a daemon is told to end, and lets its jobs go on elsewhere
};

struct Options {
  uint64_t seed = 0;
  core::Config config;
  int hosts = 1;
  int devices_max = 1;  // of a host
  bool two_types = false;
  bool auto_precision = false;  // every other job leaves its precision to the devices
  Time faults_end = 0;          // then everything is repaired, and every job must end
  // Network.
  Time delay_max = 0;
  int64_t loss = 0;       // permille of messages
  int64_t duplicate = 0;  // permille
  int64_t drift_ppm = 0;  // of uptimes, at most
  int64_t skew = 0;       // of wall clocks, at most
  // Server.
  Time commit_max = 0;
  Time report_interval = 0;  // of a worker while something runs
  // Users.
  Time submit_every = 0;
  Time verb_every = 0;
  Time operator_every = 0;
  Time delete_every = 0;  // 0 if nobody deletes or clones jobs
  Time keep_max = 0;      // on_disconnect
  bool arrays = false;
  bool elastic = false;
  bool dependencies = false;
  bool quotas = false;
  bool reservations = false;
  // Hosts tell their processors and memory, and jobs ask for some. These are drawn from a stream of
  // their own, so that other seeds keep their stories.
  bool resources = false;
  bool one_host = false;     // some gangs have to be on one host; drawn as the above
  int64_t bad_trainers = 0;  // permille of jobs that fail, hang or lie by themselves
  Time step_time_max = 0;
  // The length of the one job that the users submit, or 0 if they are to do as they like.
  Time long_job = 0;
  FaultRates faults;

  std::string Describe() const;
};

Options DrawOptions(uint64_t seed);
// A quiet pool with one job that trains for 60 hours, and whose rank dies every three hours.
Options LongJobOptions(uint64_t seed);

}  // namespace trainyard::sim
