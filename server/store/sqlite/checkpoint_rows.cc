// Maps checkpoints to rows, each with its files.
#include <utility>

#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

using core::CheckpointRecord;
using core::CheckpointRef;

struct CheckpointRow {
  CheckpointRef id;
  int32_t attempt = 0;
  int64_t create_us = 0;
  bool is_evaluated = false;
  core::CheckpointEvaluation evaluation;
  std::string damage;
  std::string copy;
  std::string copy_failure;
};

const Table<CheckpointRow>& Checkpoints() {
  using Row = CheckpointRow;
  static const auto* table = new Table<Row>(
      "checkpoints", /*keys=*/2,
      {TY_COLUMN(Row, "job", id.job), TY_COLUMN(Row, "step", id.step),
       TY_COLUMN(Row, "attempt", attempt), TY_COLUMN(Row, "create_us", create_us),
       TY_COLUMN(Row, "is_evaluated", is_evaluated), TY_COLUMN(Row, "loss", evaluation.loss),
       TY_COLUMN(Row, "accuracy", evaluation.accuracy), TY_COLUMN(Row, "damage", damage),
       TY_COLUMN(Row, "copy", copy), TY_COLUMN(Row, "copy_failure", copy_failure)});
  return *table;
}

struct FileRow {
  CheckpointRef checkpoint;
  core::CheckpointFile file;
};

// The files are deleted together with their checkpoint.
const Table<FileRow>& Files() {
  using Row = FileRow;
  static const auto* table =
      new Table<Row>("checkpoint_files", /*keys=*/3,
                     {TY_COLUMN(Row, "job", checkpoint.job),
                      TY_COLUMN(Row, "step", checkpoint.step), TY_COLUMN(Row, "name", file.name),
                      TY_COLUMN(Row, "size", file.size), TY_COLUMN(Row, "hash", file.hash)});
  return *table;
}

}  // namespace

absl::Status DeleteCheckpoint(Database& db, const CheckpointRef& id) {
  return Checkpoints().Delete(db, id.job, id.step);
}

absl::Status WriteCheckpoint(Database& db, const CheckpointRecord& checkpoint) {
  const CheckpointRef& id = checkpoint.id;
  TY_RETURN_IF_ERROR(DeleteCheckpoint(db, id));
  TY_RETURN_IF_ERROR(Checkpoints().Insert(
      db, {id, checkpoint.attempt, checkpoint.create_us, checkpoint.evaluation.has_value(),
           checkpoint.evaluation.value_or(core::CheckpointEvaluation{}), checkpoint.damage,
           checkpoint.copy, checkpoint.copy_failure}));
  for (const core::CheckpointFile& file : checkpoint.files) {
    TY_RETURN_IF_ERROR(Files().Insert(db, {id, file}));
  }
  return absl::OkStatus();
}

absl::Status ReadCheckpoints(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(Checkpoints().Read(db, [&](const CheckpointRow& row) {
    CheckpointRecord& checkpoint = snapshot.checkpoints[row.id];
    checkpoint.id = row.id;
    checkpoint.attempt = row.attempt;
    checkpoint.create_us = row.create_us;
    if (row.is_evaluated) checkpoint.evaluation = row.evaluation;
    checkpoint.damage = row.damage;
    checkpoint.copy = row.copy;
    checkpoint.copy_failure = row.copy_failure;
    return absl::OkStatus();
  }));
  return Files().Read(db, [&](FileRow& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(CheckpointRecord * owner, OwnerOf(snapshot.checkpoints, row.checkpoint));
    owner->files.push_back(std::move(row.file));
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
