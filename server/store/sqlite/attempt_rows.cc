#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"

namespace trainyard::store {
namespace {

using core::AttemptPart;
using core::AttemptRecord;
using core::AttemptState;
using core::StopReason;
using core::Text;

struct FlatState {
  StopReason reason = StopReason::kNone;
  core::Failure failure;
};

FlatState Flatten(const AttemptState& state) {
  if (const auto* stopping = std::get_if<core::attempt_fsm::Stopping>(&state)) {
    return {stopping->reason, stopping->failure};
  }
  if (const auto* failed = std::get_if<core::attempt_fsm::Failed>(&state)) {
    return {StopReason::kNone, failed->failure};
  }
  if (const auto* preempted = std::get_if<core::attempt_fsm::Preempted>(&state)) {
    return {preempted->reason, {}};
  }
  if (const auto* lost = std::get_if<core::attempt_fsm::Lost>(&state)) {
    return {StopReason::kNone, lost->failure};
  }
  return {};
}

absl::StatusOr<AttemptState> Unflatten(const std::string& name, const FlatState& flat) {
  namespace fsm = core::attempt_fsm;
  const AttemptState states[] = {fsm::Placed{},
                                 fsm::Starting{},
                                 fsm::Running{},
                                 fsm::Stopping{flat.reason, flat.failure},
                                 fsm::Succeeded{},
                                 fsm::Failed{flat.failure},
                                 fsm::Preempted{flat.reason},
                                 fsm::Cancelled{},
                                 fsm::Lost{flat.failure}};
  for (const AttemptState& state : states) {
    if (fsm::Name(state) == name) return state;
  }
  return absl::DataLossError(absl::StrCat("'", name, "' is no state of an attempt"));
}

constexpr char kWriteAttempt[] =
    "INSERT INTO attempts (job, number, fencing_token, state, state_reason, failure_class, "
    "failure_reason, failure_message, resume_job, resume_step, create_us, start_us, end_us) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (job, number) DO UPDATE SET fencing_token = excluded.fencing_token, "
    "state = excluded.state, state_reason = excluded.state_reason, "
    "failure_class = excluded.failure_class, failure_reason = excluded.failure_reason, "
    "failure_message = excluded.failure_message, resume_job = excluded.resume_job, "
    "resume_step = excluded.resume_step, create_us = excluded.create_us, "
    "start_us = excluded.start_us, end_us = excluded.end_us";
constexpr char kReadAttempts[] =
    "SELECT job, number, fencing_token, state, state_reason, failure_class, failure_reason, "
    "failure_message, resume_job, resume_step, create_us, start_us, end_us "
    "FROM attempts ORDER BY job, number";

// A placement never changes: written once.
constexpr char kWriteRank[] =
    "INSERT INTO attempt_ranks (job, number, rank, worker, device) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (job, number, rank) DO NOTHING";
constexpr char kReadRanks[] =
    "SELECT job, number, rank, worker, device FROM attempt_ranks ORDER BY job, number, rank";

constexpr char kWritePart[] =
    "INSERT INTO attempt_parts (job, number, worker, state, outcome, failure_class, "
    "failure_reason, failure_message, step, failed_rank) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (job, number, worker) DO UPDATE SET state = excluded.state, "
    "outcome = excluded.outcome, failure_class = excluded.failure_class, "
    "failure_reason = excluded.failure_reason, failure_message = excluded.failure_message, "
    "step = excluded.step, failed_rank = excluded.failed_rank";
constexpr char kReadParts[] =
    "SELECT job, number, worker, state, outcome, failure_class, failure_reason, failure_message, "
    "step, failed_rank FROM attempt_parts ORDER BY job, number, worker";

absl::Status TakeAttempt(const Statement& row, AttemptRecord& attempt) {
  attempt.fencing_token = row.Int(2);
  FlatState flat;
  TY_RETURN_IF_ERROR(FromText(row.Text(4), flat.reason));
  TY_RETURN_IF_ERROR(FromText(row.Text(5), flat.failure.failure_class));
  flat.failure.reason = row.Text(6);
  flat.failure.message = row.Text(7);
  TY_ASSIGN_OR_RETURN(attempt.state, Unflatten(row.Text(3), flat));
  if (!row.IsNull(8)) attempt.resume_from = core::CheckpointRef{JobId{row.Int(8)}, row.Int(9)};
  attempt.create_us = row.Int(10);
  attempt.start_us = row.Int(11);
  attempt.end_us = row.Int(12);
  return absl::OkStatus();
}

absl::Status TakePart(const Statement& row, AttemptPart& part) {
  part.worker = row.Text(2);
  TY_RETURN_IF_ERROR(FromText(row.Text(3), part.state));
  TY_RETURN_IF_ERROR(FromText(row.Text(4), part.outcome.kind));
  TY_RETURN_IF_ERROR(FromText(row.Text(5), part.outcome.failure.failure_class));
  part.outcome.failure.reason = row.Text(6);
  part.outcome.failure.message = row.Text(7);
  part.outcome.step = row.Int(8);
  part.outcome.failed_rank = row.Int32(9);
  return absl::OkStatus();
}

AttemptId IdOf(const Statement& row) {
  return {JobId{row.Int(0)}, row.Int32(1)};
}

}  // namespace

absl::Status WriteAttempt(Database& db, const AttemptRecord& attempt) {
  const FlatState flat = Flatten(attempt.state);
  Statement& row = db.Prepared(kWriteAttempt);
  row.Bind(attempt.id.job.value).Bind(attempt.id.number).Bind(attempt.fencing_token);
  row.Bind(core::attempt_fsm::Name(attempt.state)).Bind(Text(flat.reason));
  row.Bind(Text(flat.failure.failure_class)).Bind(flat.failure.reason).Bind(flat.failure.message);
  if (attempt.resume_from.has_value()) {
    row.Bind(attempt.resume_from->job.value).Bind(attempt.resume_from->step);
  } else {
    row.BindNull().BindNull();
  }
  row.Bind(attempt.create_us).Bind(attempt.start_us).Bind(attempt.end_us);
  TY_RETURN_IF_ERROR(row.Run());
  for (const core::RankPlacement& rank : attempt.ranks) {
    Statement& insert = db.Prepared(kWriteRank);
    insert.Bind(attempt.id.job.value).Bind(attempt.id.number).Bind(rank.rank);
    TY_RETURN_IF_ERROR(insert.Bind(rank.worker).Bind(rank.device).Run());
  }
  for (const AttemptPart& part : attempt.parts) {
    const core::Outcome& outcome = part.outcome;
    Statement& insert = db.Prepared(kWritePart);
    insert.Bind(attempt.id.job.value).Bind(attempt.id.number).Bind(part.worker);
    insert.Bind(Text(part.state)).Bind(Text(outcome.kind));
    insert.Bind(Text(outcome.failure.failure_class)).Bind(outcome.failure.reason);
    insert.Bind(outcome.failure.message).Bind(outcome.step).Bind(outcome.failed_rank);
    TY_RETURN_IF_ERROR(insert.Run());
  }
  return absl::OkStatus();
}

absl::Status ReadAttempts(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadAttempts), [&](const Statement& row) {
    const AttemptId id = IdOf(row);
    AttemptRecord& attempt = snapshot.attempts[id];
    attempt.id = id;
    return Annotate(TakeAttempt(row, attempt), AttemptName(id));
  }));
  TY_RETURN_IF_ERROR(ForEachRow(db.Prepared(kReadRanks), [&](const Statement& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(AttemptRecord * attempt, OwnerOf(snapshot.attempts, IdOf(row)));
    attempt->ranks.push_back({row.Int32(2), row.Text(3), row.Text(4)});
    return absl::OkStatus();
  }));
  return ForEachRow(db.Prepared(kReadParts), [&](const Statement& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(AttemptRecord * attempt, OwnerOf(snapshot.attempts, IdOf(row)));
    return Annotate(TakePart(row, attempt->parts.emplace_back()), AttemptName(attempt->id));
  });
}

}  // namespace trainyard::store
