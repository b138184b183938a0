// Tells which devices are reserved now, and until when that stays so. People choose the times of
// reservations, so this is the one decision of the core that follows the server's wall clock.
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

// Returns the reservations that the submission's owner may use.
std::set<std::string> ReservationsOf(const Snapshot& snapshot, const Submission& submission);

// Chooses the devices of a reservation that only says how many, free ones first, and checks that no
// other reservation has them at that time. The errors are those of CreateReservation.
absl::Status ResolveReservation(const Snapshot& snapshot, const Pool& pool,
                                const CreateReservation& request, Now now,
                                ReservationRecord& reservation);

// The reservations in force. The class is not thread-safe.
class Reservations {
 public:
  // Deletes reservations whose time is over, and finds the devices of those in force. Returns the
  // workers of the devices for which something has changed.
  std::set<std::string> Refresh(Ledger& ledger, Now now);
  // Notes that a reservation was made or deleted, so that the next Refresh is due at once.
  void NoteChange(Now now) { deadline_us_ = now.uptime_us; }
  // Returns the uptime at which the next reservation begins or ends.
  std::optional<int64_t> deadline_us() const { return deadline_us_; }

  // Returns the reservation in force on the device, or null if there is none.
  const std::string* On(const DeviceKey& device) const;

 private:
  std::map<DeviceKey, std::string> in_force_;
  std::optional<int64_t> deadline_us_;
};

}  // namespace trainyard::core
