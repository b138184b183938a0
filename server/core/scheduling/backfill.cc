// Decides which devices a head keeps, and to which jobs it lends them until it can start.
#include "server/core/scheduling/backfill.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "server/core/scheduling/host_supply.h"

namespace trainyard::core {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Each head covers at least one class that no earlier head covers. More heads than this are not
// worth the time that they take.
constexpr size_t kHeadsMax = 16;

}  // namespace

Offer OfType(const Slots& slots, const Offer& offer, int32_t type) {
  Offer typed = offer;
  for (size_t i = 0; i < typed.size(); ++i) {
    if (slots.classes()[i].type != type) typed[i] = Access::kNone;
  }
  return typed;
}

void Backfill::AddRelease(JobId job, std::optional<int64_t> end_us, std::vector<int32_t> held) {
  // A job that should have ended already may end at any moment.
  const int64_t end = end_us.has_value() ? std::max(*end_us, now_us_) : kNever;
  releases_.push_back({end, job, std::move(held)});
}

Offer Backfill::OfferFor(const Offer& now, JobId job, int64_t expected_us) const {
  Offer offer = now;
  for (size_t i = 0; i < offer.size(); ++i) {
    const int32_t keeper = slots_.classes()[i].keeper;
    if (offer[i] == Access::kNone || keeper < 0) continue;
    const Head& head = heads_[static_cast<size_t>(keeper)];
    const bool ends_in_time = expected_us > 0 && now_us_ + expected_us <= head.lend_until_us;
    if (ends_in_time || head.job == job) {
      offer[i] = Access::kKept;
    }
  }
  return offer;
}

Offer Backfill::OfferForGuest(const Offer& now, int64_t until_us) const {
  Offer offer = now;
  for (size_t i = 0; i < offer.size(); ++i) {
    const int32_t keeper = slots_.classes()[i].keeper;
    if (offer[i] == Access::kNone || keeper < 0) continue;
    const Head& head = heads_[static_cast<size_t>(keeper)];
    if (until_us <= head.start_us.value_or(kNever)) offer[i] = Access::kKept;
  }
  return offer;
}

void Backfill::Keep(JobId job, const Offer& now, const GangDemand& gang, bool is_overdue) {
  if (heads_.size() == kHeadsMax) return;
  Offer uncovered = now;
  for (size_t i = 0; i < uncovered.size(); ++i) {
    if (slots_.classes()[i].keeper >= 0) uncovered[i] = Access::kNone;
  }
  if (!CouldHold(slots_, uncovered, gang)) return;
  SortReleases();
  std::optional<Outlook> best;
  if (gang.mixed || !is_on_) {
    best = LookAt(uncovered, gang);
  } else {
    // The head takes the type on which it can start first. If that is unknown, it takes the type of
    // which it has the most devices already.
    for (size_t type = 0; type < slots_.types().size(); ++type) {
      Offer offer = OfType(slots_, uncovered, static_cast<int32_t>(type));
      if (!CouldHold(slots_, offer, gang)) continue;
      Outlook outlook = LookAt(std::move(offer), gang);
      const auto rank = [](const Outlook& it) {
        return std::tuple(it.start_us.value_or(kNever), !it.is_fit, -it.free);
      };
      if (!best.has_value() || rank(outlook) < rank(*best)) best = std::move(outlook);
    }
  }
  if (!best.has_value()) return;
  if (gang.one_host && is_on_ && best->worker < 0) return;
  Head head{job, best->start_us, best->last, best->start_us.value_or(now_us_ + kBlindBackfillUs)};
  if (!is_on_ || (is_overdue && !best->start_us.has_value())) head.lend_until_us = now_us_;
  heads_.push_back(head);
  if (gang.is_deviceless) {
    KeepSeat(*best, gang);
  } else {
    KeepSlots(*best, gang, is_on_ && !is_overdue);
  }
}

// Only the releases that were added since the last call need sorting.
void Backfill::SortReleases() {
  const auto middle = releases_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  std::sort(middle, releases_.end());
  std::inplace_merge(releases_.begin(), middle, releases_.end());
  sorted_ = releases_.size();
}

Backfill::Outlook Backfill::LookAt(Offer offer, const GangDemand& gang) const {
  // A head that lends nothing keeps what it could use on all workers.
  if (gang.one_host && is_on_) return LookAtHosts(std::move(offer), gang);
  const int32_t need = gang.least;
  Outlook outlook;
  HostSupply supply(slots_, offer, gang);
  outlook.free = supply.ranks();
  for (const Release& release : releases_) {
    if (release.end_us == kNever) break;
    if (outlook.start_us.has_value() && release.end_us > *outlook.start_us) break;
    for (const int32_t slot : release.slots) supply.Add(slot);
    const int32_t free = supply.ranks();
    if (free >= need && !outlook.start_us.has_value()) outlook.last = release.job;
    if (free >= need) outlook.start_us = release.end_us;
  }
  outlook.free_by_then = supply.ranks();
  if (gang.is_deviceless) outlook.worker = supply.WorkerWithMostCpus(outlook.start_us.has_value());
  outlook.offer = std::move(offer);
  return outlook;
}

// Chooses one worker for a gang of one host, since what comes free on others is of no use to it. It
// is the worker where the gang can start first. If that is unknown, it is the one that has most for
// it, counting what comes free at a known time. What is kept there is lent only until such a time,
// so that this number does not fall from pass to pass, and no stream of small jobs starves the
// head.
Backfill::Outlook Backfill::LookAtHosts(Offer offer, const GangDemand& gang) const {
  const int32_t need = gang.least;
  Outlook outlook;
  HostSupply supply(slots_, offer, gang);
  for (const Release& release : releases_) {
    if (release.end_us == kNever) break;
    if (outlook.start_us.has_value() && release.end_us > *outlook.start_us) break;
    for (const int32_t slot : release.slots) supply.Add(slot);
    for (const int32_t slot : release.slots) {
      const int32_t worker = slots_.ShelfOf(slot).worker;
      if (outlook.start_us.has_value() || supply.RanksOn(worker) < need) continue;
      outlook.start_us = release.end_us;
      outlook.last = release.job;
      outlook.worker = worker;
    }
  }
  if (outlook.worker < 0) {
    const std::vector<int32_t> ever = supply.CapacityByWorker(/*only_fit=*/false);
    const std::vector<int32_t> fit = supply.CapacityByWorker(/*only_fit=*/true);
    const auto rank = [&](int32_t worker) {
      return std::pair(fit[static_cast<size_t>(worker)] >= need, supply.RanksOn(worker));
    };
    for (int32_t worker = 0; worker < supply.workers(); ++worker) {
      if (ever[static_cast<size_t>(worker)] < need) continue;
      if (outlook.worker < 0 || rank(worker) > rank(outlook.worker)) outlook.worker = worker;
    }
    outlook.is_fit = outlook.worker >= 0 && rank(outlook.worker).first;
  }
  if (outlook.worker >= 0) outlook.free_by_then = supply.RanksOn(outlook.worker);
  outlook.free = outlook.free_by_then;
  outlook.offer = std::move(offer);
  return outlook;
}

// The head needs fewer slots than will be free when it starts, so the surplus may be lent for any
// time. Slots of the workers with the fewest free slots are lent, so that the head stays together.
// A head of one host has no surplus but that of its worker, and keeps nothing on others.
void Backfill::KeepSlots(const Outlook& outlook, const GangDemand& gang, bool lends_surplus) {
  const int32_t need = gang.least;
  const auto keeper = static_cast<int32_t>(heads_.size()) - 1;
  const auto is_wanted = [&](const Shelf& shelf) {
    return outlook.offer[static_cast<size_t>(shelf.cls)] != Access::kNone &&
           (outlook.worker < 0 || shelf.worker == outlook.worker);
  };
  std::map<int32_t, std::vector<int32_t>> free;  // by worker
  const std::vector<Shelf>& shelves = slots_.shelves();
  for (const Shelf& shelf : shelves) {
    if (shelf.open == 0 || !is_wanted(shelf)) continue;
    for (int32_t slot = shelf.begin; slot < shelf.end; ++slot) {
      if (slots_.IsFree(slot, Access::kOpen)) free[shelf.worker].push_back(slot);
    }
  }
  std::vector<const std::vector<int32_t>*> workers;
  workers.reserve(free.size());
  for (const auto& [worker, slots] : free) workers.push_back(&slots);
  std::stable_sort(workers.begin(), workers.end(),
                   [](const auto* a, const auto* b) { return a->size() < b->size(); });
  const bool is_known = outlook.start_us.has_value();
  int32_t surplus = lends_surplus && is_known ? outlook.free_by_then - need : 0;
  int32_t kept = 0;
  for (const std::vector<int32_t>* worker : workers) {
    for (const int32_t slot : *worker) {
      if (surplus-- > 0) continue;
      slots_.SetKept(slot, true);
      ++kept;
    }
  }
  if (outlook.worker < 0) {
    for (size_t i = 0; i < outlook.offer.size(); ++i) {
      if (outlook.offer[i] != Access::kNone) {
        slots_.SetKeeper(static_cast<int32_t>(i), keeper, gang.resources);
      }
    }
  } else {
    for (const Shelf& shelf : shelves) {
      if (is_wanted(shelf)) slots_.SetKeeper(shelf.cls, keeper, gang.resources);
    }
  }
  // Devices that will come to the head are not given to a nominated job behind it.
  for (const Release& release : releases_) {
    if (!is_known || kept >= need || release.end_us > *outlook.start_us) break;
    for (const int32_t slot : release.slots) {
      const Slot& it = slots_.slot(slot);
      if (kept >= need || !it.offered || it.claim != JobId{}) continue;
      if (!is_wanted(slots_.ShelfOf(slot))) continue;
      slots_.SetKept(slot, true);
      ++kept;
    }
  }
}

// A rank without a device needs one host, so that only one keeps processors and memory for it.
void Backfill::KeepSeat(const Outlook& outlook, const GangDemand& gang) {
  if (outlook.worker < 0) return;
  const auto keeper = static_cast<int32_t>(heads_.size()) - 1;
  for (const Shelf& shelf : slots_.shelves()) {
    if (shelf.worker != outlook.worker) continue;
    if (outlook.offer[static_cast<size_t>(shelf.cls)] == Access::kNone) continue;
    slots_.SetKeeper(shelf.cls, keeper, gang.resources);
    for (int32_t slot = shelf.begin; slot < shelf.end; ++slot) {
      if (!slots_.IsFree(slot, Access::kOpen)) continue;
      slots_.SetKept(slot, true);
      return;
    }
  }
}

}  // namespace trainyard::core
