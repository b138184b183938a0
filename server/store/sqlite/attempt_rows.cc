// Maps attempts to rows: the attempt itself, its ranks, and its part on each worker.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

using core::AttemptPart;
using core::AttemptRecord;
using core::AttemptState;
using core::JobRecord;
using core::StopReason;

struct AttemptRow {
  AttemptRecord attempt;  // without ranks and parts
  std::string state;
  StopReason state_reason = StopReason::kNone;
  core::Failure failure;
  std::optional<int64_t> resume_job;
  std::optional<int64_t> resume_step;
};

const Table<AttemptRow>& Attempts() {
  using Row = AttemptRow;
  static const auto* table = new Table<Row>(
      "attempts", /*keys=*/2,
      {TY_COLUMN(Row, "job", attempt.id.job), TY_COLUMN(Row, "number", attempt.id.number),
       TY_COLUMN(Row, "fencing_token", attempt.fencing_token), TY_COLUMN(Row, "state", state),
       TY_COLUMN(Row, "state_reason", state_reason),
       TY_COLUMN(Row, "failure_class", failure.failure_class),
       TY_COLUMN(Row, "failure_reason", failure.reason),
       TY_COLUMN(Row, "failure_message", failure.message),
       TY_COLUMN(Row, "failure_exit_code", failure.exit_code),
       TY_COLUMN(Row, "resume_job", resume_job), TY_COLUMN(Row, "resume_step", resume_step),
       TY_COLUMN(Row, "create_us", attempt.create_us), TY_COLUMN(Row, "start_us", attempt.start_us),
       TY_COLUMN(Row, "end_us", attempt.end_us), TY_COLUMN(Row, "isolation", attempt.isolation),
       TY_COLUMN(Row, "guest_of", attempt.guest_of)});
  return *table;
}

struct RankRow {
  AttemptId attempt;
  core::RankPlacement rank;
};

const Table<RankRow>& Ranks() {
  using Row = RankRow;
  static const auto* table =
      new Table<Row>("attempt_ranks", /*keys=*/3,
                     {TY_COLUMN(Row, "job", attempt.job), TY_COLUMN(Row, "number", attempt.number),
                      TY_COLUMN(Row, "rank", rank.rank), TY_COLUMN(Row, "worker", rank.worker),
                      TY_COLUMN(Row, "device", rank.device), TY_COLUMN(Row, "cpus", rank.held.cpus),
                      TY_COLUMN(Row, "memory_bytes", rank.held.memory_bytes)});
  return *table;
}

struct PartRow {
  AttemptId attempt;
  AttemptPart part;
};

const Table<PartRow>& Parts() {
  using Row = PartRow;
  static const auto* table =
      new Table<Row>("attempt_parts", /*keys=*/3,
                     {TY_COLUMN(Row, "job", attempt.job), TY_COLUMN(Row, "number", attempt.number),
                      TY_COLUMN(Row, "worker", part.worker), TY_COLUMN(Row, "state", part.state),
                      TY_COLUMN(Row, "outcome", part.outcome.kind),
                      TY_COLUMN(Row, "failure_class", part.outcome.failure.failure_class),
                      TY_COLUMN(Row, "failure_reason", part.outcome.failure.reason),
                      TY_COLUMN(Row, "failure_message", part.outcome.failure.message),
                      TY_COLUMN(Row, "failure_exit_code", part.outcome.failure.exit_code),
                      TY_COLUMN(Row, "step", part.outcome.step),
                      TY_COLUMN(Row, "failed_rank", part.outcome.failed_rank)});
  return *table;
}

void Flatten(const AttemptState& state, AttemptRow& row) {
  row.state = std::string(core::attempt_fsm::Name(state));
  if (const auto* stopping = std::get_if<core::attempt_fsm::Stopping>(&state)) {
    row.state_reason = stopping->reason;
    row.failure = stopping->failure;
  } else if (const auto* failed = std::get_if<core::attempt_fsm::Failed>(&state)) {
    row.failure = failed->failure;
  } else if (const auto* preempted = std::get_if<core::attempt_fsm::Preempted>(&state)) {
    row.state_reason = preempted->reason;
  } else if (const auto* lost = std::get_if<core::attempt_fsm::Lost>(&state)) {
    row.failure = lost->failure;
  }
}

absl::StatusOr<AttemptState> Unflatten(const AttemptRow& row) {
  namespace fsm = core::attempt_fsm;
  const AttemptState states[] = {fsm::Placed{},
                                 fsm::Starting{},
                                 fsm::Running{},
                                 fsm::Stopping{row.state_reason, row.failure},
                                 fsm::Succeeded{},
                                 fsm::Failed{row.failure},
                                 fsm::Preempted{row.state_reason},
                                 fsm::Cancelled{},
                                 fsm::Lost{row.failure}};
  for (const AttemptState& state : states) {
    if (fsm::Name(state) == row.state) return state;
  }
  return absl::DataLossError(absl::StrCat("'", row.state, "' is no state of an attempt"));
}

// Returns true for a job whose own row could not be read.
bool IsDamaged(const core::JobRecord& job) {
  const auto* failed = std::get_if<core::job_fsm::Failed>(&job.state);
  return failed != nullptr && failed->failure.reason == kDamagedRow;
}

}  // namespace

absl::Status WriteAttempt(Database& db, const AttemptRecord& attempt) {
  AttemptRow row;
  row.attempt.id = attempt.id;
  row.attempt.fencing_token = attempt.fencing_token;
  row.attempt.create_us = attempt.create_us;
  row.attempt.start_us = attempt.start_us;
  row.attempt.end_us = attempt.end_us;
  row.attempt.isolation = attempt.isolation;
  row.attempt.guest_of = attempt.guest_of;
  Flatten(attempt.state, row);
  if (attempt.resume_from.has_value()) {
    row.resume_job = attempt.resume_from->job.value;
    row.resume_step = attempt.resume_from->step;
  }
  TY_RETURN_IF_ERROR(Attempts().Put(db, row));
  for (const core::RankPlacement& rank : attempt.ranks) {
    // A placement never changes, so it is written only once.
    TY_RETURN_IF_ERROR(Ranks().Add(db, {attempt.id, rank}));
  }
  for (const AttemptPart& part : attempt.parts) {
    TY_RETURN_IF_ERROR(Parts().Put(db, {attempt.id, part}));
  }
  return absl::OkStatus();
}

absl::Status DeleteAttempts(Database& db, JobId job) {
  TY_RETURN_IF_ERROR(Parts().Delete(db, job));
  TY_RETURN_IF_ERROR(Ranks().Delete(db, job));
  return Attempts().Delete(db, job);
}

absl::Status ReadAttempts(Database& db, core::Snapshot& snapshot) {
  TY_RETURN_IF_ERROR(
      Attempts().ReadDamaged(db, [&](AttemptRow& row, absl::Status damage) -> absl::Status {
        AttemptRecord& attempt = row.attempt;
        const std::string name = AttemptName(attempt.id);
        auto state = Unflatten(row);
        damage.Update(state.status());
        TY_ASSIGN_OR_RETURN(const JobRecord* job, OwnerOf(snapshot.jobs, attempt.id.job));
        if (damage.ok()) {
          attempt.state = *std::move(state);
          if (IsDamaged(*job) && !core::attempt_fsm::IsFinal(attempt.state)) {
            return absl::DataLossError(absl::StrCat(name,
                                                    " may still run, but the row of its job is "
                                                    "damaged"));
          }
        } else {
          const bool is_over = attempt.id.number < job->attempt ||
                               (core::job_fsm::IsFinal(job->state) && !IsDamaged(*job));
          if (!is_over) return Annotate(damage, name);
          TellDamage(name, "the attempt counts as lost", damage);
          attempt.state = core::attempt_fsm::Lost{
              {core::FailureClass::kLost, kDamagedRow, std::string(damage.message())}};
        }
        if (row.resume_job.has_value()) {
          attempt.resume_from =
              core::CheckpointRef{JobId{*row.resume_job}, row.resume_step.value_or(0)};
        }
        const AttemptId id = attempt.id;
        snapshot.attempts.emplace_hint(snapshot.attempts.end(), id, std::move(attempt));
        return absl::OkStatus();
      }));
  TY_RETURN_IF_ERROR(Ranks().Read(db, [&](RankRow& row) -> absl::Status {
    TY_ASSIGN_OR_RETURN(AttemptRecord * attempt, OwnerOf(snapshot.attempts, row.attempt));
    attempt->ranks.push_back(std::move(row.rank));
    return absl::OkStatus();
  }));
  return Parts().ReadDamaged(db, [&](PartRow& row, const absl::Status& damage) -> absl::Status {
    TY_ASSIGN_OR_RETURN(AttemptRecord * attempt, OwnerOf(snapshot.attempts, row.attempt));
    if (!damage.ok()) {
      if (!core::attempt_fsm::IsFinal(attempt->state)) return damage;
      TellDamage(AttemptName(row.attempt), "the part of a worker counts as lost", damage);
      row.part.state = core::PartState::kLost;
    }
    attempt->parts.push_back(std::move(row.part));
    return absl::OkStatus();
  });
}

}  // namespace trainyard::store
