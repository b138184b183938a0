// Maps the rules by which the pool is shared to rows: quotas, reservations and usage.
#include <utility>

#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

using core::QuotaRecord;
using core::ReservationRecord;
using core::UsageRecord;

const Table<QuotaRecord>& Quotas() {
  using Row = QuotaRecord;
  static const auto* table = new Table<Row>(
      "quotas", /*keys=*/1,
      {TY_COLUMN(Row, "subject", subject), TY_COLUMN(Row, "devices", devices),
       TY_COLUMN(Row, "queued_jobs", queued_jobs),
       TY_COLUMN(Row, "submits_per_minute", submits_per_minute),
       TY_COLUMN(Row, "stored_bytes", stored_bytes), TY_COLUMN(Row, "weight", weight),
       TY_COLUMN(Row, "cpus", held.cpus), TY_COLUMN(Row, "memory_bytes", held.memory_bytes)});
  return *table;
}

// The devices and subjects of a reservation are deleted with it.
const Table<ReservationRecord>& Reservations() {
  using Row = ReservationRecord;
  static const auto* table =
      new Table<Row>("reservations", /*keys=*/1,
                     {TY_COLUMN(Row, "name", name), TY_COLUMN(Row, "start_us", start_us),
                      TY_COLUMN(Row, "end_us", end_us), TY_COLUMN(Row, "actor", actor)});
  return *table;
}

struct ReservedDeviceRow {
  std::string reservation;
  std::pair<std::string, std::string> device;  // worker, device
};

const Table<ReservedDeviceRow>& ReservedDevices() {
  using Row = ReservedDeviceRow;
  static const auto* table = new Table<Row>(
      "reservation_devices", /*keys=*/3,
      {TY_COLUMN(Row, "reservation", reservation), TY_COLUMN(Row, "worker", device.first),
       TY_COLUMN(Row, "device", device.second)});
  return *table;
}

struct SubjectRow {
  std::string reservation;
  int64_t position = 0;
  std::string subject;
};

const Table<SubjectRow>& Subjects() {
  using Row = SubjectRow;
  static const auto* table =
      new Table<Row>("reservation_subjects", /*keys=*/2,
                     {TY_COLUMN(Row, "reservation", reservation),
                      TY_COLUMN(Row, "position", position), TY_COLUMN(Row, "subject", subject)});
  return *table;
}

const Table<UsageRecord>& Usage() {
  using Row = UsageRecord;
  static const auto* table =
      new Table<Row>("usage", /*keys=*/2,
                     {TY_COLUMN(Row, "project", project), TY_COLUMN(Row, "user", user),
                      TY_COLUMN(Row, "device_us", device_us)});
  return *table;
}

}  // namespace

absl::Status WriteQuota(Database& db, const QuotaRecord& quota) {
  return Quotas().Put(db, quota);
}

absl::Status DeleteQuota(Database& db, const std::string& subject) {
  return Quotas().Delete(db, subject);
}

absl::Status ReadQuotas(Database& db, core::Snapshot& snapshot) {
  return Quotas().Read(db, [&](QuotaRecord& quota) {
    std::string subject = quota.subject;
    snapshot.quotas.insert_or_assign(std::move(subject), std::move(quota));
    return absl::OkStatus();
  });
}

absl::Status WriteReservation(Database& db, const ReservationRecord& reservation) {
  const std::string& name = reservation.name;
  TY_RETURN_IF_ERROR(DeleteReservation(db, name));
  TY_RETURN_IF_ERROR(Reservations().Insert(db, reservation));
  for (const auto& device : reservation.devices) {
    TY_RETURN_IF_ERROR(ReservedDevices().Insert(db, {name, device}));
  }
  int64_t position = 0;
  for (const std::string& subject : reservation.subjects) {
    TY_RETURN_IF_ERROR(Subjects().Insert(db, {name, position++, subject}));
  }
  return absl::OkStatus();
}

absl::Status DeleteReservation(Database& db, const std::string& name) {
  return Reservations().Delete(db, name);
}

absl::Status ReadReservations(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(Reservations().Read(db, [&](ReservationRecord& reservation) {
    std::string name = reservation.name;
    snapshot.reservations.insert_or_assign(std::move(name), std::move(reservation));
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(ReservedDevices().Read(db, [&](ReservedDeviceRow& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(auto* owner, OwnerOf(snapshot.reservations, row.reservation));
    owner->devices.push_back(std::move(row.device));
    return absl::OkStatus();
  }));
  return Subjects().Read(db, [&](SubjectRow& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(auto* owner, OwnerOf(snapshot.reservations, row.reservation));
    owner->subjects.push_back(std::move(row.subject));
    return absl::OkStatus();
  });
}

absl::Status WriteUsage(Database& db, const std::vector<UsageRecord>& usage) {
  TY_RETURN_IF_ERROR(Usage().Delete(db));
  for (const UsageRecord& record : usage) TY_RETURN_IF_ERROR(Usage().Insert(db, record));
  return absl::OkStatus();
}

absl::Status ReadUsage(Database& db, core::Snapshot& snapshot) {
  return Usage().Read(db, [&](UsageRecord& usage) {
    core::UsageKey key(usage.project, usage.user);
    snapshot.usage.emplace(std::move(key), std::move(usage));
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
