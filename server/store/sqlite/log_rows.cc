// Maps events and answered requests, which are written once and never change, to rows. It also
// writes the one row that changes with every commit.
#include <utility>

#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

using core::EventRecord;
using core::RequestRecord;

struct EventRow {
  EventRecord event;
  std::string parent;
};

const Table<EventRow>& Events() {
  using Row = EventRow;
  static const auto* table = new Table<Row>(
      "events", /*keys=*/1,
      {TY_COLUMN(Row, "sequence", event.sequence), TY_COLUMN(Row, "time_us", event.time_us),
       TY_COLUMN(Row, "parent", parent), TY_COLUMN(Row, "resource", event.resource),
       TY_COLUMN(Row, "type", event.type), TY_COLUMN(Row, "actor", event.actor),
       TY_COLUMN(Row, "message", event.message)});
  return *table;
}

constexpr char kDeleteEvents[] = "DELETE FROM events WHERE parent = ?";

const Table<RequestRecord>& Requests() {
  using Row = RequestRecord;
  static const auto* table = new Table<Row>(
      "requests", /*keys=*/1,
      {TY_COLUMN(Row, "job", job), TY_COLUMN(Row, "request_id", request_id),
       TY_COLUMN(Row, "request_hash", request_hash), TY_COLUMN(Row, "create_us", create_us)});
  return *table;
}

struct MetaRow {
  int64_t id = 1;
  int64_t revision = 0;
  int64_t next_job = 0;
  int64_t next_event = 0;
  int64_t pool_time_us = 0;
};

const Table<MetaRow>& Meta() {
  using Row = MetaRow;
  static const auto* table = new Table<Row>(
      "meta", /*keys=*/1,
      {TY_COLUMN(Row, "id", id), TY_COLUMN(Row, "revision", revision),
       TY_COLUMN(Row, "next_job", next_job), TY_COLUMN(Row, "next_event", next_event),
       TY_COLUMN(Row, "pool_time_us", pool_time_us)});
  return *table;
}

}  // namespace

absl::Status WriteEvent(Database& db, const EventRecord& event) {
  return Events().Insert(db, {event, core::EventParent(event.resource)});
}

absl::Status DeleteEvents(Database& db, absl::string_view parent) {
  return db.Prepared(kDeleteEvents).Bind(parent).Run();
}

absl::StatusOr<std::vector<EventRecord>> ReadEvents(Database& db, absl::string_view parent,
                                                    int64_t after_sequence, int64_t limit) {
  Statement& rows = Events().Select(
      db, parent.empty() ? "WHERE sequence > ? ORDER BY sequence LIMIT ?"
                         : "WHERE parent = ? AND sequence > ? ORDER BY sequence LIMIT ?");
  if (!parent.empty()) rows.Bind(parent);
  rows.Bind(after_sequence).Bind(limit);
  std::vector<EventRecord> page;
  TY_RETURN_IF_ERROR(Events().Read(rows, [&](EventRow& row) {
    page.push_back(std::move(row.event));
    return absl::OkStatus();
  }));
  return page;
}

absl::Status WriteRequest(Database& db, const RequestRecord& request) {
  return Requests().Insert(db, request);
}

absl::Status ReadRequests(Database& db, core::Snapshot& snapshot) {
  return Requests().Read(db, [&](RequestRecord& request) {
    std::string id = request.request_id;
    snapshot.requests.insert_or_assign(std::move(id), std::move(request));
    return absl::OkStatus();
  });
}

absl::Status WriteMeta(Database& db, const core::Delta& delta) {
  return Meta().Update(db,
                       {1, delta.revision, delta.next_job, delta.next_event, delta.pool_time_us});
}

absl::Status ReadMeta(Database& db, core::Snapshot& snapshot) {
  bool is_there = false;
  TY_RETURN_IF_ERROR(Meta().Read(db, [&](const MetaRow& row) {
    is_there = true;
    snapshot.revision = row.revision;
    snapshot.next_job = row.next_job;
    snapshot.next_event = row.next_event;
    snapshot.pool_time_us = row.pool_time_us;
    return absl::OkStatus();
  }));
  return is_there ? absl::OkStatus() : absl::DataLossError("the table meta is empty");
}

}  // namespace trainyard::store
