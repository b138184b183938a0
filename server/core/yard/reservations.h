// Which devices are reserved now, and until when that stands. Reservations begin and end at
// people's times: this one decision of the core goes by the server's wall clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "server/core/lifecycle/snapshot.h"
#include "server/core/scheduling/placement.h"
#include "server/core/yard/inputs.h"
#include "server/core/yard/ledger.h"

namespace trainyard::core {

// The reservations that the submission's owner may use.
std::set<std::string> ReservationsOf(const Snapshot& snapshot, const Submission& submission);

// Fills in the devices of a reservation that only says how many, free ones first, and checks that
// nobody else has them at that time. Errors: see CreateReservation.
absl::Status ResolveReservation(const Snapshot& snapshot, const Pool& pool,
                                const CreateReservation& request, Now now,
                                ReservationRecord& reservation);

// Not thread-safe.
class Reservations {
 public:
  // Deletes those whose time is over, and finds the devices of those in force. Returns the workers
  // of the devices for which something has changed.
  std::set<std::string> Refresh(Ledger& ledger, Now now);
  // A reservation has come or gone: something is to be refreshed at once.
  void NoteChange(Now now) { deadline_us_ = now.uptime_us; }
  // Uptime at which the next reservation begins or ends.
  std::optional<int64_t> deadline_us() const { return deadline_us_; }

  // The reservation in force on the device; null for none.
  const std::string* On(const DeviceKey& device) const;

 private:
  std::map<DeviceKey, std::string> in_force_;
  std::optional<int64_t> deadline_us_;
};

}  // namespace trainyard::core
