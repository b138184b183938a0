// Decides which devices a head keeps, and to which jobs it lends them until it can start.
#include "server/core/scheduling/backfill.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trainyard::core {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Each head covers at least one class that no earlier head covers. More heads than this are not
// worth the time that they take.
constexpr size_t kHeadsMax = 16;

bool IsOffered(const Slots& slots, const Offer& offer, int32_t slot) {
  return offer[static_cast<size_t>(slots.ShelfOf(slot).cls)] != Access::kNone;
}

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
    best = LookAt(uncovered, gang.least);
  } else {
    // The head takes the type on which it can start first. If that is unknown, it takes the type of
    // which it has the most devices already.
    for (size_t type = 0; type < slots_.types().size(); ++type) {
      Offer offer = OfType(slots_, uncovered, static_cast<int32_t>(type));
      if (!CouldHold(slots_, offer, gang)) continue;
      Outlook outlook = LookAt(std::move(offer), gang.least);
      const auto rank = [](const Outlook& it) {
        return std::pair(it.start_us.value_or(kNever), -it.free);
      };
      if (!best.has_value() || rank(outlook) < rank(*best)) best = std::move(outlook);
    }
  }
  if (!best.has_value()) return;
  Head head{job, best->start_us, best->last, best->start_us.value_or(now_us_ + kBlindBackfillUs)};
  if (!is_on_ || (is_overdue && !best->start_us.has_value())) head.lend_until_us = now_us_;
  heads_.push_back(head);
  KeepSlots(*best, gang.least, is_on_ && !is_overdue);
}

// Only the releases that were added since the last call need sorting.
void Backfill::SortReleases() {
  const auto middle = releases_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  std::sort(middle, releases_.end());
  std::inplace_merge(releases_.begin(), middle, releases_.end());
  sorted_ = releases_.size();
}

Backfill::Outlook Backfill::LookAt(Offer offer, int32_t need) const {
  Outlook outlook;
  for (size_t i = 0; i < offer.size(); ++i) {
    if (offer[i] != Access::kNone) outlook.free += slots_.classes()[i].open;
  }
  int32_t free = outlook.free;
  for (const Release& release : releases_) {
    if (release.end_us == kNever) break;
    if (outlook.start_us.has_value() && release.end_us > *outlook.start_us) break;
    for (const int32_t slot : release.slots) {
      const Slot& it = slots_.slot(slot);
      if (it.offered && it.claim == JobId{} && IsOffered(slots_, offer, slot)) ++free;
    }
    if (free >= need && !outlook.start_us.has_value()) outlook.last = release.job;
    if (free >= need) outlook.start_us = release.end_us;
  }
  outlook.free_by_then = free;
  outlook.offer = std::move(offer);
  return outlook;
}

// The head needs fewer slots than will be free when it starts, so the surplus may be lent for any
// time. Slots of the workers with the fewest free slots are lent, so that the head stays together.
void Backfill::KeepSlots(const Outlook& outlook, int32_t need, bool lends_surplus) {
  const auto keeper = static_cast<int32_t>(heads_.size()) - 1;
  std::map<int32_t, std::vector<int32_t>> free;  // by worker
  const std::vector<Shelf>& shelves = slots_.shelves();
  for (const Shelf& shelf : shelves) {
    if (outlook.offer[static_cast<size_t>(shelf.cls)] == Access::kNone || shelf.open == 0) continue;
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
  for (size_t i = 0; i < outlook.offer.size(); ++i) {
    if (outlook.offer[i] != Access::kNone) slots_.SetKeeper(static_cast<int32_t>(i), keeper);
  }
  // Devices that will come to the head are not given to a nominated job behind it.
  for (const Release& release : releases_) {
    if (!is_known || kept >= need || release.end_us > *outlook.start_us) break;
    for (const int32_t slot : release.slots) {
      const Slot& it = slots_.slot(slot);
      if (kept >= need || !it.offered || it.claim != JobId{}) continue;
      if (!IsOffered(slots_, outlook.offer, slot)) continue;
      slots_.SetKept(slot, true);
      ++kept;
    }
  }
}

}  // namespace trainyard::core
