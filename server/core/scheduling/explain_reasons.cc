// Counts the devices that a shape could use by what makes them unavailable, and states that in
// sentences.
#include "server/core/scheduling/explain_reasons.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/strings.h"
#include "server/core/scheduling/host_caps.h"

namespace trainyard::core {
namespace {

// At most this many names are listed, so that sentences stay readable on a busy pool.
constexpr size_t kNamed = 5;

std::string Devices(int32_t count) {
  return absl::StrCat(count, count == 1 ? " device" : " devices");
}

// Adds up what belongs to one holder. There are many holders, and the devices of one are adjacent,
// so a list costs less than a map.
void Merge(std::vector<std::pair<JobId, int32_t>>& held) {
  std::sort(held.begin(), held.end());
  size_t kept = 0;
  for (const auto& [job, count] : held) {
    if (kept > 0 && held[kept - 1].first == job) {
      held[kept - 1].second += count;
    } else {
      held[kept++] = {job, count};
    }
  }
  held.resize(kept);
}

std::string Holders(const std::vector<std::pair<JobId, int32_t>>& held) {
  std::string text;
  size_t named = 0;
  int32_t rest = 0;
  for (const auto& [job, count] : held) {
    if (named < kNamed) {
      absl::StrAppend(&text, named == 0 ? "" : ", ", JobName(job), " holds ", count);
      ++named;
    } else {
      rest += count;
    }
  }
  if (rest > 0) absl::StrAppend(&text, ", ", held.size() - named, " more jobs hold ", rest);
  return text;
}

std::string LabelsText(const std::map<std::string, std::string>& labels) {
  return absl::StrJoin(labels, ", ", absl::PairFormatter("="));
}

bool HasSeveralTypes(const Slots& slots) {
  const auto named = std::count_if(slots.types().begin(), slots.types().end(),
                                   [](const std::string& type) { return !type.empty(); });
  return named > 1;
}

std::string MemoryText(int64_t bytes) {
  if (bytes % (int64_t{1} << 30) == 0) return absl::StrCat(bytes >> 30, " GiB");
  if (bytes % (int64_t{1} << 20) == 0) return absl::StrCat(bytes >> 20, " MiB");
  return absl::StrCat(bytes, " bytes");
}

}  // namespace

std::string TimeOfDay(Now now, int64_t uptime_us) {
  const int64_t minute = (now.wall_us + uptime_us - now.uptime_us) / kMinute;
  return absl::StrFormat("%02d:%02d UTC", minute / 60 % 24, minute % 60);
}

std::string ResourcesText(const HostAmount& resources) {
  std::vector<std::string> parts;
  if (resources.cpus > 0) {
    parts.push_back(absl::StrCat(resources.cpus, resources.cpus == 1 ? " cpu" : " cpus"));
  }
  if (resources.memory_bytes > 0) {
    parts.push_back(absl::StrCat(MemoryText(resources.memory_bytes), " of memory"));
  }
  return absl::StrJoin(parts, " and ");
}

std::string DemandText(const Demand& demand) {
  const std::string resources = ResourcesText(demand.resources);
  if (demand.is_deviceless) {
    std::string text = resources.empty() ? "1 cpu" : resources;
    if (!demand.labels.empty()) {
      absl::StrAppend(&text, " on workers with ", LabelsText(demand.labels));
    }
    return text;
  }
  std::string text = demand.is_elastic()
                         ? absl::StrCat(demand.least(), " to ", Devices(demand.count))
                         : Devices(demand.count);
  if (!demand.type.empty()) absl::StrAppend(&text, " of type ", demand.type);
  if (!resources.empty()) absl::StrAppend(&text, ", each with ", resources);
  if (demand.memory_bytes > 0) absl::StrAppend(&text, " with ", MemoryText(demand.memory_bytes));
  if (demand.one_host) absl::StrAppend(&text, " on one host");
  if (demand.bf16) absl::StrAppend(&text, demand.memory_bytes > 0 ? " and" : " with", " bf16");
  if (!demand.labels.empty()) {
    absl::StrAppend(&text, " on workers with ", LabelsText(demand.labels));
  }
  return text;
}

std::string DatasetText(const Demand& demand) {
  return absl::StrCat("the data set ", demand.dataset,
                      demand.data_digest.empty() ? "" : " of data.digest ", demand.data_digest);
}

CapacityReasons::CapacityReasons(const Pool& pool, const PassState& state) : state_(state) {
  workers_.reserve(pool.size());
  for (const PoolWorker& worker : pool) workers_.push_back(worker.name);
  for (const Shelf& shelf : state.slots.shelves()) {
    const PoolWorker& worker = pool[static_cast<size_t>(shelf.worker)];
    const bool is_seat = state.slots.classes()[static_cast<size_t>(shelf.cls)].is_seat;
    if (!worker.users.empty() && !is_seat) {
      if (users_workers_.empty() || users_workers_.back().name != worker.name) {
        users_workers_.push_back({worker.name, worker.users, {}});
      }
      users_workers_.back().devices[shelf.cls] += shelf.end - shelf.begin;
    }
    for (int32_t slot = shelf.begin; slot < shelf.end; ++slot) {
      const Slot& it = state.slots.slot(slot);
      if (it.offered || it.holder != JobId{}) continue;
      std::string what = absl::StrCat("worker ", worker.name, " ", worker.why_not);
      if (worker.takes_ranks) {
        const PoolDevice& device = worker.devices[static_cast<size_t>(it.device)];
        what =
            absl::StrCat("device ", device.name, " of worker ", worker.name, " ", device.why_not);
      }
      if (!set_aside_.empty() && set_aside_.back().what == what &&
          set_aside_.back().cls == shelf.cls) {
        ++set_aside_.back().devices;
      } else {
        set_aside_.push_back({shelf.cls, std::move(what), 1});
      }
    }
  }
}

bool CapacityReasons::IsFeasible(const QueuedJob& job) const {
  return CouldHold(state_.slots, state_.ReachOf(job).ever, state_.GangOf(job.demand, kNoLimit));
}

std::vector<std::string> CapacityReasons::WhyNot(const QueuedJob& job) const {
  const std::vector<Head>& heads = state_.backfill.heads();
  const bool is_head = std::any_of(heads.begin(), heads.end(),
                                   [&job](const Head& head) { return head.job == job.id; });
  if (is_head) return Find(job);  // devices that are kept for it are free only for it
  const auto [found, is_new] = known_.try_emplace(ShapeOf(job));
  if (is_new) found->second = Find(job);
  return found->second;
}

const CapacityReasons::Tally& CapacityReasons::TallyFor(const QueuedJob& job) const {
  static const Tally kNothing;
  const Reach& reach = state_.ReachOf(job);
  Offer now = state_.backfill.OfferFor(reach.now, job.id, RoundUpExpected(job.expected_us));
  const bool by_type = job.demand.type.empty() && !job.demand.mixed;
  const auto [found, is_new] = tallies_.try_emplace({&reach, now, by_type});
  if (is_new) found->second = Count(reach, now, by_type);
  const int32_t least = state_.GangOf(job.demand, kNoLimit).least;
  const auto rank = [least](const Tally& tally) {
    return std::tuple(tally.total >= least, tally.free, tally.total);
  };
  const Tally* best = &kNothing;
  for (const auto& [type, tally] : found->second) {
    if (rank(tally) > rank(*best)) best = &tally;
  }
  return *best;
}

CapacityReasons::Tallies CapacityReasons::Count(const Reach& reach, const Offer& now,
                                                bool by_type) const {
  const Slots& slots = state_.slots;
  Tallies tallies;
  const auto tally_of = [&](int32_t cls) -> Tally& {
    return tallies[by_type ? slots.classes()[static_cast<size_t>(cls)].type : -1];
  };
  for (const Shelf& shelf : slots.shelves()) {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (reach.ever[cls] == Access::kNone) continue;
    const DeviceClass& of = slots.classes()[cls];
    Tally& tally = tally_of(shelf.cls);
    for (int32_t slot = shelf.begin; slot < shelf.end; ++slot) {
      const Slot& it = slots.slot(slot);
      ++tally.total;
      if (it.holder != JobId{}) {
        if (tally.held.empty() || tally.held.back().first != it.holder) {
          tally.held.emplace_back(it.holder, 0);
        }
        ++tally.held.back().second;
      } else if (!it.offered) {
        continue;  // counted below
      } else if (now[cls] == Access::kNone) {
        ++tally.reserved[of.reservation];
      } else if (it.claim != JobId{}) {
        ++tally.claimed[it.claim];
      } else if (it.kept && now[cls] != Access::kKept) {
        ++tally.kept[of.keeper];
      } else {
        ++tally.free;
      }
    }
  }
  for (auto& [type, tally] : tallies) Merge(tally.held);
  for (const SetAside& entry : set_aside_) {
    if (reach.ever[static_cast<size_t>(entry.cls)] != Access::kNone) {
      tally_of(entry.cls).set_aside[entry.what] += entry.devices;
    }
  }
  return tallies;
}

std::vector<std::string> CapacityReasons::Find(const QueuedJob& job) const {
  const Demand& demand = job.demand;
  const std::string needs = absl::StrCat("needs ", DemandText(demand));
  if (state_.slots.size() == 0) return {needs, "no worker has registered"};
  if (demand.is_deviceless) return FindOnHosts(job, needs);
  const int32_t least = state_.GangOf(demand, kNoLimit).least;
  const Tally& tally = TallyFor(job);
  std::vector<std::string> reasons;
  if (tally.total < least) {
    const bool is_any_type = demand.type.empty() && !demand.mixed;
    reasons.push_back(
        absl::StrCat(needs, is_any_type && HasSeveralTypes(state_.slots) ? " of one type" : "",
                     "; the pool has ", tally.total, ": it can never start here"));
    if (!job.reservation.empty()) {
      reasons.push_back(
          absl::StrCat("runs on devices of the reservation ", job.reservation, " only"));
    }
    AddMismatches(job, reasons);
    return reasons;
  }
  if (demand.one_host && !IsFeasible(job)) {
    reasons.push_back(absl::StrCat(needs, "; no host has as many: it can never start here"));
    AddMismatches(job, reasons);
    return reasons;
  }
  const auto is_scattered = [&] {
    const Offer offer =
        state_.backfill.OfferFor(state_.ReachOf(job).now, job.id, RoundUpExpected(job.expected_us));
    return MostFreeOnOneWorker(state_.slots, offer, demand.mixed) < least;
  };
  if (demand.one_host && tally.free >= least && is_scattered()) {
    reasons.push_back(absl::StrCat(needs, "; ", tally.free, " are free, but on several hosts"));
    return reasons;
  }
  if (tally.free >= least) return FindOnHosts(job, needs);
  std::string sentence = absl::StrCat(needs, "; ", tally.free, " of ", tally.total,
                                      tally.free == 1 ? " is free" : " are free");
  if (!tally.held.empty()) absl::StrAppend(&sentence, " (", Holders(tally.held), ")");
  reasons.push_back(std::move(sentence));
  AddKept(tally, least, reasons);
  for (const auto& [job_with_claim, count] : tally.claimed) {
    reasons.push_back(absl::StrCat(Devices(count), count == 1 ? " is" : " are", " kept for ",
                                   JobName(job_with_claim),
                                   ", which has been chosen to continue "
                                   "there"));
  }
  for (const auto& [reservation, count] : tally.reserved) {
    reasons.push_back(reservation.empty()
                          ? absl::StrCat("runs on devices of the reservation ", job.reservation,
                                         " only, which has not begun")
                          : absl::StrCat(Devices(count), count == 1 ? " belongs" : " belong",
                                         " to the reservation ", reservation));
  }
  size_t named = 0;
  int32_t rest = 0;
  for (const auto& [what, count] : tally.set_aside) {
    if (named++ < kNamed) {
      reasons.push_back(absl::StrCat(what, " (", Devices(count), ")"));
    } else {
      rest += count;
    }
  }
  if (rest > 0) reasons.push_back(absl::StrCat(Devices(rest), " more are set aside"));
  AddMismatches(job, reasons);
  return reasons;
}

std::vector<std::string> CapacityReasons::FindOnHosts(const QueuedJob& job,
                                                      const std::string& needs) const {
  const GangDemand gang = state_.GangOf(job.demand, kNoLimit);
  const Reach& reach = state_.ReachOf(job);
  if (!CouldHold(state_.slots, reach.ever, gang)) {
    std::vector<std::string> reasons = {
        absl::StrCat(needs, "; no known hosts have that: it can never start here")};
    AddMismatches(job, reasons);
    return reasons;
  }
  if (state_.LargestFor(job, gang) > 0) return {};
  std::vector<std::string> reasons = {needs};
  AddHosts(job, reasons);
  size_t named = 0;
  for (const SetAside& entry : set_aside_) {
    const bool suits = reach.ever[static_cast<size_t>(entry.cls)] != Access::kNone;
    if (suits && job.demand.is_deviceless && named++ < kNamed) reasons.push_back(entry.what);
  }
  return reasons;
}

void CapacityReasons::AddHosts(const QueuedJob& job, std::vector<std::string>& reasons) const {
  const Slots& slots = state_.slots;
  const Offer offer =
      state_.backfill.OfferFor(state_.ReachOf(job).now, job.id, RoundUpExpected(job.expected_us));
  GangDemand gang = state_.GangOf(job.demand, kNoLimit);
  gang.reservations = &job.reservations;
  size_t named = 0;
  int32_t rest = 0;
  int32_t last = -1;
  for (const Shelf& shelf : slots.shelves()) {
    const auto cls = static_cast<size_t>(shelf.cls);
    const int32_t free = shelf.open + (offer[cls] == Access::kKept ? shelf.kept : 0);
    if (offer[cls] == Access::kNone || shelf.worker == last || free == 0) continue;
    const HostAmount need = slots.NeedOn(job.demand.resources, slots.classes()[cls]);
    if (need.empty()) continue;
    const HostAmount room = RoomOn(slots, offer, gang, shelf.worker);
    if (need.Fits(room)) continue;
    last = shelf.worker;
    if (named++ >= kNamed) {
      ++rest;
      continue;
    }
    const std::string& worker = workers_[static_cast<size_t>(shelf.worker)];
    if (need.cpus > room.cpus) {
      const int32_t cpus = std::max(room.cpus, 0);
      reasons.push_back(absl::StrCat(cpus, cpus == 1 ? " cpu is" : " cpus are", " free on ", worker,
                                     ", ", need.cpus, need.cpus == 1 ? " is" : " are", " needed"));
    }
    if (need.memory_bytes > room.memory_bytes) {
      reasons.push_back(absl::StrCat(FormatBytes(std::max<int64_t>(room.memory_bytes, 0)),
                                     " of memory is free on ", worker, ", ",
                                     FormatBytes(need.memory_bytes), " is needed"));
    }
  }
  if (rest > 0) reasons.push_back(absl::StrCat(rest, " more workers have too little left"));
}

void CapacityReasons::AddKept(const Tally& tally, int32_t least,
                              std::vector<std::string>& reasons) const {
  for (const auto& [keeper, count] : tally.kept) {
    const Head& head = state_.backfill.heads()[static_cast<size_t>(keeper)];
    const std::string start =
        head.start_us.has_value()
            ? absl::StrCat("it starts at ", TimeOfDay(state_.now, *head.start_us),
                           " at the latest, if jobs end when they are expected to")
            : "when it starts is not known";
    const bool would_do = tally.free + count >= least;
    reasons.push_back(absl::StrCat(Devices(count), count == 1 ? " is" : " are", " free, but kept ",
                                   "for ", JobName(head.job), ", which is ahead; ", start,
                                   would_do ? "" : "; these would not be enough"));
  }
}

// Adds the devices of the right type that do not meet the demand.
void CapacityReasons::AddMismatches(const QueuedJob& job, std::vector<std::string>& reasons) const {
  const Demand& demand = job.demand;
  int32_t small = 0;
  int32_t only_f32 = 0;
  int32_t elsewhere = 0;
  int32_t without_data = 0;
  int32_t on_small_hosts = 0;
  std::map<std::string, int32_t> too_small;  // by type
  for (const DeviceClass& cls : state_.slots.classes()) {
    switch (state_.slots.MismatchOf(demand, cls)) {
      case Mismatch::kLabels:
        elsewhere += cls.total;
        break;
      case Mismatch::kMemory:
        small += cls.total;
        break;
      case Mismatch::kNeed:
        too_small[state_.slots.types()[static_cast<size_t>(cls.type)]] += cls.total;
        break;
      case Mismatch::kBf16:
        only_f32 += cls.total;
        break;
      case Mismatch::kDataset:
        without_data += cls.total;
        break;
      case Mismatch::kHost:
        on_small_hosts += cls.total;
        break;
      case Mismatch::kType:
      case Mismatch::kNone:
        break;
    }
  }
  if (on_small_hosts > 0) {
    reasons.push_back(absl::StrCat(demand.is_deviceless ? "other hosts" : Devices(on_small_hosts),
                                   demand.is_deviceless  ? " have"
                                   : on_small_hosts == 1 ? " is on a host that has"
                                                         : " are on hosts that have",
                                   " less than ", ResourcesText(demand.resources)));
  }
  const std::string of_type = demand.type.empty() ? "" : absl::StrCat(" of type ", demand.type);
  if (small > 0) {
    reasons.push_back(absl::StrCat(Devices(small), of_type, small == 1 ? " has" : " have",
                                   " less than ", MemoryText(demand.memory_bytes)));
  }
  for (const auto& [type, count] : too_small) {
    reasons.push_back(absl::StrCat(Devices(count), " of type ", type, count == 1 ? " has" : " have",
                                   " less than the ", FormatBytes(NeedOn(demand, type)),
                                   " that the job needs"));
  }
  if (only_f32 > 0) {
    reasons.push_back(absl::StrCat(Devices(only_f32), of_type, only_f32 == 1 ? " does" : " do",
                                   " not compute in bf16"));
  }
  if (elsewhere > 0) {
    reasons.push_back(absl::StrCat(Devices(elsewhere), of_type, elsewhere == 1 ? " is" : " are",
                                   " on workers without ", LabelsText(demand.labels)));
  }
  if (without_data > 0) {
    reasons.push_back(absl::StrCat(Devices(without_data), of_type,
                                   without_data == 1 ? " is" : " are", " on workers without ",
                                   DatasetText(demand)));
  }
  AddOtherUsers(job, reasons);
}

void CapacityReasons::AddOtherUsers(const QueuedJob& job, std::vector<std::string>& reasons) const {
  size_t named = 0;
  int32_t rest = 0;
  for (const UsersWorker& worker : users_workers_) {
    if (worker.users.Allow(job.user)) continue;
    int32_t devices = 0;
    for (const auto& [cls, count] : worker.devices) {
      const DeviceClass& of = state_.slots.classes()[static_cast<size_t>(cls)];
      const std::string& type = state_.slots.types()[static_cast<size_t>(of.type)];
      if (job.demand.type.empty() || job.demand.type == type) devices += count;
    }
    if (devices == 0) continue;
    if (named++ < kNamed) {
      reasons.push_back(absl::StrCat(WhyNotFor(job.user, worker.name, worker.users), " (",
                                     Devices(devices), ")"));
    } else {
      rest += devices;
    }
  }
  if (rest > 0) {
    reasons.push_back(
        absl::StrCat(Devices(rest), " more are on workers that do not run jobs of ", job.user));
  }
}

}  // namespace trainyard::core
