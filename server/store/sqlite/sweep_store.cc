// Implements the sweeps on SQLite.
#include "server/store/sqlite/sweep_store.h"

#include <fcntl.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

using core::sweeping::End;
using core::sweeping::Entry;
using core::sweeping::EntryKind;

constexpr char kCount[] = "SELECT count(*) FROM sweeps";
constexpr char kCreate[] =
    "INSERT INTO sweeps (uid, user, create_time_us, request_id, request_hash, spec, options) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)";
constexpr char kLastNumber[] = "SELECT last_insert_rowid()";
constexpr char kReadSweeps[] =
    "SELECT number, uid, user, create_time_us, request_id, request_hash, spec, options FROM sweeps "
    "ORDER BY number";
constexpr char kReadEntries[] =
    "SELECT kind, trial, rung, step, value, can_pause, donor, outcome, text, time_us FROM entries "
    "WHERE sweep = ? ORDER BY sequence";
constexpr char kReadJobs[] =
    "SELECT trial, generation, job FROM trial_jobs WHERE sweep = ? ORDER BY trial, generation";
constexpr char kAddEntry[] =
    "INSERT INTO entries (sweep, sequence, kind, trial, rung, step, value, can_pause, donor, "
    "outcome, text, time_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr char kAddJob[] =
    "INSERT INTO trial_jobs (sweep, trial, generation, job) VALUES (?, ?, ?, ?) ON CONFLICT DO "
    "NOTHING";
constexpr std::array kDeletions = {"DELETE FROM entries WHERE sweep = ?",
                                   "DELETE FROM trial_jobs WHERE sweep = ?",
                                   "DELETE FROM sweeps WHERE number = ?"};

// The words under which entries are kept.
template <typename Value>
using Words = std::vector<std::pair<Value, absl::string_view>>;

const Words<EntryKind>& Kinds() {
  static const auto* words = new Words<EntryKind>{
      {EntryKind::kReported, "REPORTED"},
      {EntryKind::kHeld, "HELD"},
      {EntryKind::kSucceeded, "SUCCEEDED"},
      {EntryKind::kFailed, "FAILED"},
      {EntryKind::kBudgetUsed, "BUDGET_USED"},
      {EntryKind::kStopRequested, "STOP_REQUESTED"},
      {EntryKind::kCancelRequested, "CANCEL_REQUESTED"},
      {EntryKind::kResumeRequested, "RESUME_REQUESTED"},
      {EntryKind::kRetryRequested, "RETRY_REQUESTED"},
      {EntryKind::kStarted, "STARTED"},
      {EntryKind::kRestarted, "RESTARTED"},
      {EntryKind::kContinued, "CONTINUED"},
      {EntryKind::kPaused, "PAUSED"},
      {EntryKind::kTrialStopped, "TRIAL_STOPPED"},
      {EntryKind::kExploited, "EXPLOITED"},
      {EntryKind::kEnded, "ENDED"},
  };
  return *words;
}

const Words<End>& Ends() {
  static const auto* words = new Words<End>{{End::kNone, ""},
                                            {End::kSucceeded, "SUCCEEDED"},
                                            {End::kStopped, "STOPPED"},
                                            {End::kFailed, "FAILED"}};
  return *words;
}

template <typename Value>
absl::string_view WordOf(const Words<Value>& words, Value value) {
  for (const auto& [known, word] : words) {
    if (known == value) return word;
  }
  return "";
}

template <typename Value>
absl::Status TakeWord(const Words<Value>& words, absl::string_view word, Value& value) {
  for (const auto& [known, text] : words) {
    if (text != word) continue;
    value = known;
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("'", word, "' is no word that is known"));
}

absl::StatusOr<Entry> EntryFrom(const Statement& row) {
  Entry entry;
  TY_RETURN_IF_ERROR(TakeWord(Kinds(), row.Text(0), entry.kind));
  entry.trial = row.Int32(1);
  entry.rung = row.Int32(2);
  entry.step = row.Int(3);
  entry.value = row.Real(4);
  entry.can_pause = row.Int(5) != 0;
  entry.donor = row.Int32(6);
  TY_RETURN_IF_ERROR(TakeWord(Ends(), row.Text(7), entry.end));
  entry.text = row.Text(8);
  entry.time_us = row.Int(9);
  return entry;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SweepStore>> SweepStore::Open(const std::string& path) {
  TY_RETURN_IF_ERROR(OpenRegularFile(path, O_WRONLY | O_CREAT, 0600).status());
  TY_ASSIGN_OR_RETURN(auto db, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(Migrate(*db, "sweeps", SweepMigrations()));
  return std::unique_ptr<SweepStore>(new SweepStore(std::move(db)));
}

absl::StatusOr<int64_t> SweepStore::Create(const SweepRecord& sweep) {
  const MutexLock lock(&mutex_);
  int64_t count = 0;
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kCount), [&](const Statement& row) {
    count = row.Int(0);
    return absl::OkStatus();
  }));
  if (count >= kSweepsMax) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_SWEEPS",
        absl::StrCat("there are ", count, " sweeps; delete some with `trainyard sweep rm`"));
  }
  const std::string spec = sweep.spec.SerializeAsString();
  const std::string options = sweep.options.SerializeAsString();
  TY_RETURN_IF_ERROR(db_->Prepared(kCreate)
                         .Bind(sweep.uid)
                         .Bind(sweep.user)
                         .Bind(sweep.create_us)
                         .Bind(sweep.request_id)
                         .Bind(sweep.request_hash)
                         .BindBlob(spec)
                         .BindBlob(options)
                         .Run());
  int64_t number = 0;
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kLastNumber), [&](const Statement& row) {
    number = row.Int(0);
    return absl::OkStatus();
  }));
  return number;
}

absl::StatusOr<std::vector<SweepRecord>> SweepStore::ReadAll() {
  const MutexLock lock(&mutex_);
  std::vector<SweepRecord> sweeps;
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadSweeps), [&](const Statement& row) {
    SweepRecord sweep;
    sweep.number = row.Int(0);
    sweep.uid = row.Text(1);
    sweep.user = row.Text(2);
    sweep.create_us = row.Int(3);
    sweep.request_id = row.Text(4);
    sweep.request_hash = row.Text(5);
    if (sweep.spec.ParseFromString(row.Blob(6)) && sweep.options.ParseFromString(row.Blob(7))) {
      sweeps.push_back(std::move(sweep));
    } else {
      TellDamage(SweepName(sweep.number), "the sweep does not go on",
                 absl::DataLossError("its spec cannot be read"));
    }
    return absl::OkStatus();
  }));
  return sweeps;
}

absl::StatusOr<SweepHistory> SweepStore::ReadHistory(int64_t sweep) {
  const MutexLock lock(&mutex_);
  SweepHistory history;
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadEntries).Bind(sweep),
                                [&](const Statement& row) -> absl::Status {
                                  TY_ASSIGN_OR_RETURN(Entry entry, EntryFrom(row));
                                  history.entries.push_back(std::move(entry));
                                  return absl::OkStatus();
                                }));
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadJobs).Bind(sweep), [&](const Statement& row) {
    history.jobs.push_back({row.Int32(0), row.Int32(1), JobId{row.Int(2)}});
    return absl::OkStatus();
  }));
  return history;
}

absl::Status SweepStore::Append(int64_t sweep, int64_t first, const std::vector<Entry>& entries) {
  const MutexLock lock(&mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  int64_t sequence = first;
  for (const Entry& entry : entries) {
    TY_RETURN_IF_ERROR(db_->Prepared(kAddEntry)
                           .Bind(sweep)
                           .Bind(sequence++)
                           .Bind(WordOf(Kinds(), entry.kind))
                           .Bind(entry.trial)
                           .Bind(entry.rung)
                           .Bind(entry.step)
                           .BindReal(entry.value)
                           .Bind(int64_t{entry.can_pause})
                           .Bind(entry.donor)
                           .Bind(WordOf(Ends(), entry.end))
                           .Bind(entry.text)
                           .Bind(entry.time_us)
                           .Run());
  }
  return transaction.Commit();
}

absl::Status SweepStore::AddJob(int64_t sweep, const TrialJob& job) {
  const MutexLock lock(&mutex_);
  return db_->Prepared(kAddJob)
      .Bind(sweep)
      .Bind(job.trial)
      .Bind(job.generation)
      .Bind(job.job.value)
      .Run();
}

absl::Status SweepStore::Delete(int64_t sweep) {
  const MutexLock lock(&mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  for (const char* deletion : kDeletions) {
    TY_RETURN_IF_ERROR(db_->Prepared(deletion).Bind(sweep).Run());
  }
  return transaction.Commit();
}

}  // namespace trainyard::store
