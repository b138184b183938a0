#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"

namespace trainyard::store {
namespace {

using core::CheckpointRecord;
using core::CheckpointRef;

constexpr char kDeleteCheckpoint[] = "DELETE FROM checkpoints WHERE job = ? AND step = ?";
constexpr char kWriteCheckpoint[] =
    "INSERT INTO checkpoints (job, step, attempt, create_us, is_evaluated, loss, accuracy) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)";
constexpr char kReadCheckpoints[] =
    "SELECT job, step, attempt, create_us, is_evaluated, loss, accuracy FROM checkpoints "
    "ORDER BY job, step";
constexpr char kWriteFile[] =
    "INSERT INTO checkpoint_files (job, step, name, size, hash) VALUES (?, ?, ?, ?, ?)";
constexpr char kReadFiles[] =
    "SELECT job, step, name, size, hash FROM checkpoint_files ORDER BY job, step, name";

constexpr char kWriteRequest[] =
    "INSERT INTO requests (job, request_id, request_hash, create_us) VALUES (?, ?, ?, ?)";
constexpr char kReadRequests[] =
    "SELECT job, request_id, request_hash, create_us FROM requests ORDER BY job";

constexpr char kWriteEvent[] =
    "INSERT INTO events (sequence, time_us, parent, resource, type, actor, message) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)";

CheckpointRef IdOf(const Statement& row) {
  return {JobId{row.Int(0)}, row.Int(1)};
}

}  // namespace

absl::Status DeleteCheckpoint(Database& db, const CheckpointRef& id) {
  return db.Prepared(kDeleteCheckpoint).Bind(id.job.value).Bind(id.step).Run();
}

absl::Status WriteCheckpoint(Database& db, const CheckpointRecord& checkpoint) {
  const CheckpointRef& id = checkpoint.id;
  TY_RETURN_IF_ERROR(DeleteCheckpoint(db, id));
  Statement& row = db.Prepared(kWriteCheckpoint);
  row.Bind(id.job.value).Bind(id.step).Bind(checkpoint.attempt).Bind(checkpoint.create_us);
  const core::CheckpointEvaluation evaluation =
      checkpoint.evaluation.value_or(core::CheckpointEvaluation{});
  row.Bind(int64_t{checkpoint.evaluation.has_value()});
  TY_RETURN_IF_ERROR(row.BindReal(evaluation.loss).BindReal(evaluation.accuracy).Run());
  for (const core::CheckpointFile& file : checkpoint.files) {
    Statement& insert = db.Prepared(kWriteFile);
    insert.Bind(id.job.value).Bind(id.step).Bind(file.name).Bind(file.size).Bind(file.hash);
    TY_RETURN_IF_ERROR(insert.Run());
  }
  return absl::OkStatus();
}

absl::Status ReadCheckpoints(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadCheckpoints), [&](const Statement& row) {
    CheckpointRecord& checkpoint = snapshot.checkpoints[IdOf(row)];
    checkpoint.id = IdOf(row);
    checkpoint.attempt = row.Int32(2);
    checkpoint.create_us = row.Int(3);
    if (row.Int(4) != 0) checkpoint.evaluation = {row.Real(5), row.Real(6)};
    return absl::OkStatus();
  }));
  return ForEachRow(db.Prepared(kReadFiles), [&](const Statement& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(CheckpointRecord * owner, OwnerOf(snapshot.checkpoints, IdOf(row)));
    owner->files.push_back({row.Text(2), row.Int(3), row.Text(4)});
    return absl::OkStatus();
  });
}

absl::Status WriteRequest(Database& db, const core::RequestRecord& request) {
  Statement& row = db.Prepared(kWriteRequest);
  row.Bind(request.job.value).Bind(request.request_id).Bind(request.request_hash);
  return row.Bind(request.create_us).Run();
}

absl::Status ReadRequests(Database& db, core::Snapshot& snapshot) {
  return ForEachRow(db.Prepared(kReadRequests), [&](const Statement& row) {
    snapshot.requests[row.Text(1)] = {row.Text(1), row.Text(2), JobId{row.Int(0)}, row.Int(3)};
    return absl::OkStatus();
  });
}

absl::Status WriteEvent(Database& db, const core::EventRecord& event) {
  const std::string parent = core::EventParent(event.resource);
  Statement& row = db.Prepared(kWriteEvent);
  row.Bind(event.sequence).Bind(event.time_us).Bind(parent).Bind(event.resource);
  return row.Bind(event.type).Bind(event.actor).Bind(event.message).Run();
}

}  // namespace trainyard::store
