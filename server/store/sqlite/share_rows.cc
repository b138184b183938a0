// What the pool is shared by: quotas, reservations, usage.
#include <utility>

#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"

namespace trainyard::store {
namespace {

using core::QuotaRecord;
using core::ReservationRecord;
using core::UsageRecord;

constexpr char kDeleteQuota[] = "DELETE FROM quotas WHERE subject = ?";
constexpr char kWriteQuota[] =
    "INSERT OR REPLACE INTO quotas (subject, devices, queued_jobs, submits_per_minute, "
    "stored_bytes, weight) VALUES (?, ?, ?, ?, ?, ?)";
constexpr char kReadQuotas[] =
    "SELECT subject, devices, queued_jobs, submits_per_minute, stored_bytes, weight FROM quotas";

// Its devices and subjects go with it.
constexpr char kDeleteReservation[] = "DELETE FROM reservations WHERE name = ?";
constexpr char kWriteReservation[] =
    "INSERT INTO reservations (name, start_us, end_us, actor) VALUES (?, ?, ?, ?)";
constexpr char kReadReservations[] = "SELECT name, start_us, end_us, actor FROM reservations";
constexpr char kWriteDevice[] =
    "INSERT INTO reservation_devices (reservation, worker, device) VALUES (?, ?, ?)";
constexpr char kReadDevices[] =
    "SELECT reservation, worker, device FROM reservation_devices "
    "ORDER BY reservation, worker, device";
constexpr char kWriteSubject[] =
    "INSERT INTO reservation_subjects (reservation, position, subject) VALUES (?, ?, ?)";
constexpr char kReadSubjects[] =
    "SELECT reservation, position, subject FROM reservation_subjects "
    "ORDER BY reservation, position";

constexpr char kDeleteUsage[] = "DELETE FROM usage";
constexpr char kWriteUsage[] = "INSERT INTO usage (project, user, device_us) VALUES (?, ?, ?)";
constexpr char kReadUsage[] = "SELECT project, user, device_us FROM usage";

}  // namespace

absl::Status WriteQuota(Database& db, const QuotaRecord& quota) {
  Statement& row = db.Prepared(kWriteQuota);
  row.Bind(quota.subject).Bind(quota.devices).Bind(quota.queued_jobs);
  return row.Bind(quota.submits_per_minute).Bind(quota.stored_bytes).Bind(quota.weight).Run();
}

absl::Status DeleteQuota(Database& db, const std::string& subject) {
  return db.Prepared(kDeleteQuota).Bind(subject).Run();
}

absl::Status ReadQuotas(Database& db, core::Snapshot& snapshot) {
  return ForEachRow(db.Prepared(kReadQuotas), [&](const Statement& row) {
    const std::string subject = row.Text(0);
    snapshot.quotas[subject] = {subject,      row.Int32(1), row.Int32(2),
                                row.Int32(3), row.Int(4),   row.Int32(5)};
    return absl::OkStatus();
  });
}

absl::Status WriteReservation(Database& db, const ReservationRecord& reservation) {
  const std::string& name = reservation.name;
  TY_RETURN_IF_ERROR(DeleteReservation(db, name));
  Statement& row = db.Prepared(kWriteReservation);
  row.Bind(name).Bind(reservation.start_us).Bind(reservation.end_us);
  TY_RETURN_IF_ERROR(row.Bind(reservation.actor).Run());
  for (const auto& [worker, device] : reservation.devices) {
    TY_RETURN_IF_ERROR(db.Prepared(kWriteDevice).Bind(name).Bind(worker).Bind(device).Run());
  }
  int64_t position = 0;
  for (const std::string& subject : reservation.subjects) {
    Statement& insert = db.Prepared(kWriteSubject);
    TY_RETURN_IF_ERROR(insert.Bind(name).Bind(position++).Bind(subject).Run());
  }
  return absl::OkStatus();
}

absl::Status DeleteReservation(Database& db, const std::string& name) {
  return db.Prepared(kDeleteReservation).Bind(name).Run();
}

absl::Status ReadReservations(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadReservations), [&](const Statement& row) {
    const std::string name = row.Text(0);
    snapshot.reservations[name] = {name, row.Int(1), row.Int(2), {}, {}, row.Text(3)};
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(
      ForEachRow(db.Prepared(kReadDevices), [&](const Statement& row) -> absl::Status {
        TY_ASSIGN_OR_RETURN(auto* owner, OwnerOf(snapshot.reservations, row.Text(0)));
        owner->devices.emplace_back(row.Text(1), row.Text(2));
        return absl::OkStatus();
      }));
  return ForEachRow(db.Prepared(kReadSubjects), [&](const Statement& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(auto* owner, OwnerOf(snapshot.reservations, row.Text(0)));
    owner->subjects.push_back(row.Text(2));
    return absl::OkStatus();
  });
}

absl::Status WriteUsage(Database& db, const std::vector<UsageRecord>& usage) {
  TY_RETURN_IF_ERROR(db.Prepared(kDeleteUsage).Run());
  for (const UsageRecord& record : usage) {
    Statement& row = db.Prepared(kWriteUsage);
    TY_RETURN_IF_ERROR(row.Bind(record.project).Bind(record.user).Bind(record.device_us).Run());
  }
  return absl::OkStatus();
}

absl::Status ReadUsage(Database& db, core::Snapshot& snapshot) {
  return ForEachRow(db.Prepared(kReadUsage), [&](const Statement& row) {
    UsageRecord usage{row.Text(0), row.Text(1), row.Int(2)};
    core::UsageKey key(usage.project, usage.user);
    snapshot.usage.emplace(std::move(key), std::move(usage));
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
