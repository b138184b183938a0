// Backfill with a reservation (EASY): the first job that cannot start keeps devices, so that no
// stream of small jobs starves it; those behind it may use them only if they end in time, or as
// guests, who go when it can start.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/core/scheduling/packing.h"
#include "server/core/scheduling/placement.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// Where nobody knows when the devices of a head come, jobs that take no longer than this may use
// what it keeps: the most that they can cost it.
inline constexpr int64_t kBlindBackfillUs = kHour;

// A waiting job that keeps devices.
struct Head {
  JobId job;
  std::optional<int64_t> start_us;  // uptime: when enough devices will be free; unset: unknown
  JobId last;                       // whose end it waits for; 0: unknown
  int64_t lend_until_us = 0;        // uptime: who ends by then may use what it keeps
};

// Borrows the slots.
class Backfill {
 public:
  // `is_on` false: a head keeps all that could serve it, and lends to nobody.
  Backfill(Slots& slots, int64_t now_us, bool is_on)
      : slots_(slots), now_us_(now_us), is_on_(is_on) {}

  // When the slots that a job holds come back; unset: unknown.
  void AddRelease(JobId job, std::optional<int64_t> end_us, std::vector<int32_t> held);

  // What the job may have of the classes of `now`, if it takes so long (0: unknown).
  Offer OfferFor(const Offer& now, JobId job, int64_t expected_us) const;

  // What a guest may have that is to stay until an uptime at least: also what is kept for
  // heads that do not start before.
  Offer OfferForGuest(const Offer& now, int64_t until_us) const;

  // The job becomes a head, on those of its classes on which there is none yet. Where these can
  // never hold it, nothing is kept. A head that is overdue lends nothing on the word of others that
  // they will end.
  void Keep(JobId job, const Offer& now, const GangDemand& gang, bool is_overdue);

  const std::vector<Head>& heads() const { return heads_; }

 private:
  struct Release {
    int64_t end_us;
    JobId job;
    std::vector<int32_t> slots;

    friend auto operator<=>(const Release&, const Release&) = default;
  };
  // How a head fares on some classes.
  struct Outlook {
    Offer offer;
    int32_t free = 0;
    std::optional<int64_t> start_us;
    JobId last;
    int32_t free_by_then = 0;
  };

  void SortReleases();
  Outlook LookAt(Offer offer, int32_t need) const;
  void KeepSlots(const Outlook& outlook, int32_t need, bool lends_surplus);

  Slots& slots_;
  const int64_t now_us_;
  const bool is_on_;
  std::vector<Release> releases_;
  size_t sorted_ = 0;  // so many of them are in order
  std::vector<Head> heads_;
};

// The classes of `offer` that are of one type.
Offer OfType(const Slots& slots, const Offer& offer, int32_t type);

}  // namespace trainyard::core
