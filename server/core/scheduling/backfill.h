// Backfill with a reservation (EASY): the first job that cannot start keeps devices, so that no
// stream of small jobs starves it. Jobs behind it may use these devices only if they end in time,
// or as guests, which go when it can start.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/core/scheduling/packing.h"
#include "server/core/scheduling/placement.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// A head of which nobody knows when its devices come lends what it keeps to jobs that take no
// longer than this. It is the most that they can cost it.
inline constexpr int64_t kBlindBackfillUs = kHour;

// A waiting job that keeps devices.
struct Head {
  JobId job;
  std::optional<int64_t> start_us;  // uptime: when enough devices will be free; unset: unknown
  JobId last;                       // the job whose end it waits for; 0: unknown
  int64_t lend_until_us = 0;        // uptime: jobs that end by then may use what it keeps
};

// Borrows the slots.
class Backfill {
 public:
  // `is_on` false: a head keeps all that could serve it, and lends to nobody.
  Backfill(Slots& slots, int64_t now_us, bool is_on)
      : slots_(slots), now_us_(now_us), is_on_(is_on) {}

  // The job gives back the slots that it holds at `end_us`; unset: nobody knows when.
  void AddRelease(JobId job, std::optional<int64_t> end_us, std::vector<int32_t> held);

  // The part of `now` that the job may have if it takes `expected_us` (0: unknown).
  Offer OfferFor(const Offer& now, JobId job, int64_t expected_us) const;

  // The part of `now` that a guest may have which is to stay until this uptime at least. Devices
  // kept for heads that do not start before are part of it.
  Offer OfferForGuest(const Offer& now, int64_t until_us) const;

  // The job becomes a head on those of its classes on which there is none yet. Nothing is kept if
  // these can never hold it. A head that is overdue does not lend because others are expected to
  // end.
  void Keep(JobId job, const Offer& now, const GangDemand& gang, bool is_overdue);

  const std::vector<Head>& heads() const { return heads_; }

 private:
  struct Release {
    int64_t end_us;
    JobId job;
    std::vector<int32_t> slots;

    friend auto operator<=>(const Release&, const Release&) = default;
  };
  // What a head can expect of some classes.
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
  size_t sorted_ = 0;  // the number of releases, from the first, that are in order
  std::vector<Head> heads_;
};

// The classes of `offer` that are of one type.
Offer OfType(const Slots& slots, const Offer& offer, int32_t type);

}  // namespace trainyard::core
