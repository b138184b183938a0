// Implements backfill with a reservation (EASY): the first job that cannot start keeps devices, so
// that no stream of small jobs starves it. Jobs behind it may use these devices only if they end in
// time, or as guests, which leave when it can start.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/core/scheduling/packing.h"
#include "server/core/scheduling/placement.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// If the start of a head is unknown, it lends its devices to jobs that take no longer than this.
// That is also the longest delay that they can cause.
inline constexpr int64_t kBlindBackfillUs = kHour;

// A waiting job that keeps devices.
struct Head {
  JobId job;
  std::optional<int64_t> start_us;  // uptime when enough devices will be free; unset if unknown
  JobId last;                       // the job for whose end it waits; 0 if unknown
  // Uptime; jobs that end by then may use the devices that it keeps.
  int64_t lend_until_us = 0;
};

// Finds out what heads keep and lend. It borrows the slots.
class Backfill {
 public:
  // If `is_on` is false, a head keeps all devices that it could use, and lends none.
  Backfill(Slots& slots, int64_t now_us, bool is_on)
      : slots_(slots), now_us_(now_us), is_on_(is_on) {}

  // Notes that the job gives back the slots at `end_us`, which is unset if unknown.
  void AddRelease(JobId job, std::optional<int64_t> end_us, std::vector<int32_t> held);

  // Returns the part of `now` that the job may have if it takes `expected_us` (0 means unknown).
  Offer OfferFor(const Offer& now, JobId job, int64_t expected_us) const;

  // Returns the part of `now` that a guest may have if it needs it at least until this uptime.
  // Devices that are kept for heads that do not start before then belong to it.
  Offer OfferForGuest(const Offer& now, int64_t until_us) const;

  // Returns the classes of which the kept slots are lent to the job, whatever it wants itself.
  Offer LentTo(JobId job, int64_t expected_us) const {
    return OfferFor(Offer(slots_.classes().size(), Access::kOpen), job, expected_us);
  }

  // Makes the job a head on those of its classes that have no head yet. It keeps nothing if these
  // classes can never hold the job. A head that is overdue does not lend on the ground that others
  // are expected to end.
  void Keep(JobId job, const Offer& now, const GangDemand& gang, bool is_overdue);

  const std::vector<Head>& heads() const { return heads_; }

 private:
  struct Release {
    int64_t end_us;
    JobId job;
    std::vector<int32_t> slots;

    friend auto operator<=>(const Release&, const Release&) = default;
  };
  // The prospects of a head on some classes.
  struct Outlook {
    Offer offer;
    int32_t free = 0;
    std::optional<int64_t> start_us;
    JobId last;
    int32_t free_by_then = 0;
    // The worker where a rank without a device, or a gang of one host, is to start; -1 for others.
    int32_t worker = -1;
    bool is_fit = true;  // false if that worker lacks devices until somebody mends it
  };

  void SortReleases();
  Outlook LookAt(Offer offer, const GangDemand& gang) const;
  Outlook LookAtHosts(Offer offer, const GangDemand& gang) const;
  void KeepSlots(const Outlook& outlook, const GangDemand& gang, bool lends_surplus);
  void KeepSeat(const Outlook& outlook, const GangDemand& gang);

  Slots& slots_;
  const int64_t now_us_;
  const bool is_on_;
  std::vector<Release> releases_;
  size_t sorted_ = 0;  // the number of releases, from the first, that are in order
  std::vector<Head> heads_;
};

// Returns the classes of `offer` that are of one type.
Offer OfType(const Slots& slots, const Offer& offer, int32_t type);

}  // namespace trainyard::core
