// Computes times and devices of reservations.
#include "server/core/yard/reservations.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::core {
namespace {

bool Overlaps(const ReservationRecord& a, const ReservationRecord& b, const DeviceKey& device) {
  return a.start_us < b.end_us && b.start_us < a.end_us &&
         std::find(b.devices.begin(), b.devices.end(), device) != b.devices.end();
}

bool IsTaken(const Snapshot& snapshot, const ReservationRecord& made, const DeviceKey& device) {
  return std::any_of(snapshot.reservations.begin(), snapshot.reservations.end(),
                     [&](const auto& other) { return Overlaps(made, other.second, device); });
}

// Free devices come first.
void ChooseDevices(const Snapshot& snapshot, const Pool& pool, const CreateReservation& request,
                   ReservationRecord& made) {
  for (const bool free : {true, false}) {
    for (const PoolWorker& worker : pool) {
      for (const PoolDevice& device : worker.devices) {
        if (static_cast<int32_t>(made.devices.size()) == request.count) return;
        const DeviceKey key{worker.name, device.name};
        const bool fits = device.usable && (request.type.empty() || device.type == request.type);
        if (fits && (device.holder == JobId{}) == free && !IsTaken(snapshot, made, key)) {
          made.devices.push_back(key);
        }
      }
    }
  }
}

absl::Status CheckDevice(const Snapshot& snapshot, const ReservationRecord& made,
                         const DeviceKey& device) {
  const auto worker = snapshot.workers.find(device.first);
  const bool is_there =
      worker != snapshot.workers.end() &&
      std::any_of(worker->second.devices.begin(), worker->second.devices.end(),
                  [&device](const DeviceRecord& have) { return have.name == device.second; });
  if (!is_there) return error::DeviceNotFound(device.first, device.second);
  if (!IsTaken(snapshot, made, device)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "device ", device.second, " of worker ", device.first, " is reserved already at that time"));
}

}  // namespace

std::set<std::string> ReservationsOf(const Snapshot& snapshot, const Submission& submission) {
  std::set<std::string> names;
  for (const auto& [name, reservation] : snapshot.reservations) {
    for (const std::string& subject : reservation.subjects) {
      if (subject == absl::StrCat("user:", submission.user) ||
          (!submission.project.empty() &&
           subject == absl::StrCat("project:", submission.project))) {
        names.insert(name);
      }
    }
  }
  return names;
}

absl::Status ResolveReservation(const Snapshot& snapshot, const Pool& pool,
                                const CreateReservation& request, Now now,
                                ReservationRecord& reservation) {
  reservation = request.reservation;
  if (snapshot.reservations.count(reservation.name) > 0) {
    return error::ReservationExists(reservation.name);
  }
  if (reservation.end_us <= reservation.start_us || reservation.end_us <= now.wall_us) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reservation '", reservation.name, "': it must end after it starts, and after now"));
  }
  if (reservation.devices.empty()) {
    ChooseDevices(snapshot, pool, request, reservation);
    if (static_cast<int32_t>(reservation.devices.size()) < request.count || request.count < 1) {
      return absl::FailedPreconditionError(absl::StrCat(
          "reservation '", reservation.name, "': ", request.count, " devices",
          request.type.empty() ? "" : absl::StrCat(" of type ", request.type), " were asked for; ",
          reservation.devices.size(), " are not reserved at that time"));
    }
  }
  for (const DeviceKey& device : reservation.devices) {
    TY_RETURN_IF_ERROR(CheckDevice(snapshot, reservation, device));
  }
  std::sort(reservation.devices.begin(), reservation.devices.end());
  return absl::OkStatus();
}

std::set<std::string> Reservations::Refresh(Ledger& ledger, Now now) {
  deadline_us_.reset();
  if (ledger.snapshot().reservations.empty() && in_force_.empty()) return {};
  std::map<DeviceKey, std::string> in_force;
  std::optional<int64_t> next_us;  // wall time
  std::vector<std::string> over;
  for (const auto& [name, reservation] : ledger.snapshot().reservations) {
    if (reservation.end_us <= now.wall_us) {
      over.push_back(name);
      continue;
    }
    const bool has_begun = reservation.start_us <= now.wall_us;
    const int64_t change = has_begun ? reservation.end_us : reservation.start_us;
    if (!next_us.has_value() || change < *next_us) next_us = change;
    if (!has_begun) continue;
    for (const DeviceKey& device : reservation.devices) in_force[device] = name;
  }
  for (const std::string& name : over) {
    ledger.DeleteReservation(name);
    ledger.AddEvent(now.wall_us, absl::StrCat("reservations/", name), "RESERVATION_ENDED", "server",
                    "its time is over");
  }
  if (next_us.has_value()) deadline_us_ = now.uptime_us + *next_us - now.wall_us;
  if (in_force == in_force_) return {};
  std::set<std::string> workers;
  for (const auto* map : {&in_force, &in_force_}) {
    for (const auto& [device, name] : *map) workers.insert(device.first);
  }
  in_force_ = std::move(in_force);
  return workers;
}

const std::string* Reservations::On(const DeviceKey& device) const {
  const auto found = in_force_.find(device);
  return found == in_force_.end() ? nullptr : &found->second;
}

}  // namespace trainyard::core
