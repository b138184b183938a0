// Draws the options of a seed from a generator of its own, so that a story does not change its
// options.
#include "tests/sim/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::sim {
namespace {

// Most seeds have only some kinds of faults: rare ones would drown in the others.
Time Rate(Random& random, int64_t permille, Time low, Time high) {
  const Time rate = random.Between(low, high);
  return random.Chance(permille) ? rate : 0;
}

FaultRates DrawFaults(Random& random) {
  FaultRates faults;
  // Nothing goes wrong: users by themselves are trouble enough.
  if (random.Chance(100)) return faults;
  const Time low = 4 * kMinute;
  const Time high = 40 * kMinute;
  faults.server_crash = Rate(random, 500, low, high);
  faults.server_power_loss = Rate(random, 300, low, high);
  faults.server_full_disk = Rate(random, 200, low, high);
  faults.worker_crash = Rate(random, 500, low, high);
  faults.worker_hang = Rate(random, 350, low, high);
  faults.host_reboot = Rate(random, 250, 10 * kMinute, 60 * kMinute);
  faults.supervisor_crash = Rate(random, 300, low, high);
  faults.partition = Rate(random, 500, low, high);
  faults.flapping = Rate(random, 200, low, high);
  faults.clock_jump = Rate(random, 300, low, high);
  faults.device_fails = Rate(random, 250, 10 * kMinute, 60 * kMinute);
  faults.foreign_use = Rate(random, 250, low, high);
  faults.rank_crash = Rate(random, 400, low, high);
  faults.rank_hang = Rate(random, 250, low, high);
  faults.host_full_disk = Rate(random, 250, low, high);
  faults.deafness = Rate(random, 250, low, high);
  return faults;
}

}  // namespace

Options DrawOptions(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15 + 1);
  Options options;
  options.seed = seed;
  options.hosts = static_cast<int>(random.Between(1, 5));
  options.devices_max = static_cast<int>(random.Between(1, 4));
  options.two_types = random.Chance(300);
  options.faults_end = random.Between(40 * kMinute, 120 * kMinute);

  core::Config& config = options.config;
  config.gone_after_us = random.Chance(500) ? 2 * kMinute : 10 * kMinute;
  config.min_runtime_us = random.Between(10 * kSecond, 5 * kMinute);
  config.grow_after_us = random.Between(20 * kSecond, 2 * kMinute);
  config.backoff_max_us = random.Between(20 * kSecond, 5 * kMinute);

  options.delay_max =
      random.Chance(200) ? random.Between(1, 3) * kSecond : random.Between(2, 200) * kMillisecond;
  options.loss = random.Chance(400) ? random.Between(1, 50) : 0;
  options.duplicate = random.Chance(300) ? random.Between(1, 100) : 0;
  options.drift_ppm = random.Chance(500) ? random.Between(0, 5000) : 0;
  options.skew = random.Chance(500) ? 3 * kHour : 0;
  options.commit_max = random.Chance(200) ? random.Between(1, 2000) * kMillisecond
                                          : random.Between(1, 30) * kMillisecond;
  // Two syncs, one after the other, have to fit into a lease. Otherwise ranks with a short
  // on_disconnect.keep do not live long enough in a slow network to make progress. Real workers
  // report every second, which leaves enough room.
  options.report_interval =
      std::min(random.Between(2, 5) * kSecond, config.lease_us / 2 - 2 * options.delay_max);

  options.submit_every = random.Between(20, 240) * kSecond;
  options.verb_every = random.Between(30, 400) * kSecond;
  options.operator_every = random.Chance(500) ? random.Between(3, 20) * kMinute : 0;
  options.keep_max = random.Chance(500) ? kMinute : 10 * kMinute;
  options.arrays = random.Chance(300);
  options.elastic = random.Chance(400);
  options.dependencies = random.Chance(400);
  options.quotas = random.Chance(300);
  options.reservations = random.Chance(250);
  options.bad_trainers = random.Chance(700) ? random.Between(0, 500) : 0;
  options.step_time_max = random.Between(100, 2000) * kMillisecond;
  options.faults = DrawFaults(random);
  options.delete_every = random.Chance(300) ? random.Between(1, 8) * kMinute : 0;
  options.auto_precision = options.two_types && !random.Chance(700);
  options.faults.checkpoint_damage = Rate(random, 100, 4 * kMinute, 40 * kMinute);
  // These draw nothing, and none of the seeds that are kept has them: each goes on as it did.
  options.resources = seed % 10 == 0;
  options.one_host = seed % 10 == 0;
  // Daemons are not told to end yet where hosts have resources of their own.
  options.faults.worker_leave = seed % 11 == 8 && !options.resources ? 6 * kMinute : 0;
  return options;
}

Options LongJobOptions(uint64_t seed) {
  Options options;
  options.seed = seed;
  options.hosts = 2;
  options.long_job = 60 * kHour;
  options.faults_end = options.long_job + kHour;
  options.delay_max = 50 * kMillisecond;
  options.commit_max = 30 * kMillisecond;
  options.report_interval = kSecond;
  options.faults.rank_crash = 3 * kHour;
  return options;
}

std::string Options::Describe() const {
  std::string text =
      absl::StrCat("seed ", seed, ": ", hosts, " hosts of up to ", devices_max,
                   " devices, faults for ", faults_end / kMinute, " min, a job each ",
                   submit_every / kSecond, " s, delay to ", delay_max / kMillisecond, " ms, loss ",
                   loss, "/1000, commits to ", commit_max / kMillisecond, " ms");
  const auto add = [&text](absl::string_view name, Time rate) {
    if (rate > 0) absl::StrAppend(&text, ", ", name, " each ", rate / kMinute, " min");
  };
  add("a deletion", delete_every);
  add("server crash", faults.server_crash);
  add("power loss", faults.server_power_loss);
  add("server's disk full", faults.server_full_disk);
  add("worker crash", faults.worker_crash);
  add("worker hang", faults.worker_hang);
  add("host reboot", faults.host_reboot);
  add("supervisor crash", faults.supervisor_crash);
  add("partition", faults.partition);
  add("flapping", faults.flapping);
  add("deafness", faults.deafness);
  add("clock jump", faults.clock_jump);
  add("device failure", faults.device_fails);
  add("foreign use", faults.foreign_use);
  add("rank crash", faults.rank_crash);
  add("rank hang", faults.rank_hang);
  add("host's disk full", faults.host_full_disk);
  add("damage to checkpoints", faults.checkpoint_damage);
  add("worker told to end", faults.worker_leave);
  return text;
}

}  // namespace trainyard::sim
