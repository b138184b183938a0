// Implements the remarks on SQLite, with all of them in memory, since every list of jobs shows
// them.
#include "server/store/sqlite/remark_store.h"

#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

constexpr char kReadNotes[] = "SELECT job, uid, note FROM notes ORDER BY job";
constexpr char kReadTags[] = "SELECT job, uid, tag FROM tags ORDER BY job, tag";
constexpr char kReadVerifications[] =
    "SELECT job, uid, second_run, verification FROM verifications ORDER BY job, second_run";
constexpr char kPutNote[] =
    "INSERT INTO notes (job, uid, note) VALUES (?, ?, ?) ON CONFLICT (job) DO UPDATE SET note = "
    "excluded.note";
constexpr char kDeleteNote[] = "DELETE FROM notes WHERE job = ?";
constexpr char kAddTag[] = "INSERT INTO tags (job, uid, tag) VALUES (?, ?, ?)";
constexpr char kDeleteTag[] = "DELETE FROM tags WHERE job = ? AND tag = ?";
constexpr char kDeleteTags[] = "DELETE FROM tags WHERE job = ?";
constexpr char kAddVerification[] =
    "INSERT INTO verifications (job, uid, second_run, verification) VALUES (?, ?, ?, ?)";
constexpr char kDeleteVerifications[] = "DELETE FROM verifications WHERE job = ?";

}  // namespace

absl::StatusOr<std::unique_ptr<RemarkStore>> RemarkStore::Open(const std::string& path) {
  TY_RETURN_IF_ERROR(OpenRegularFile(path, O_WRONLY | O_CREAT, 0600).status());
  TY_ASSIGN_OR_RETURN(auto db, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(Migrate(*db, "remarks", RemarkMigrations()));
  std::unique_ptr<RemarkStore> store(new RemarkStore(std::move(db)));
  TY_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status RemarkStore::Load() {
  const MutexLock file_lock(&file_mutex_);
  std::map<JobId, std::pair<std::string, Remarks>> found;
  const auto at = [&found](const Statement& row) -> Remarks& {
    auto& [uid, remarks] = found[JobId{row.Int(0)}];
    uid = row.Text(1);
    return remarks;
  };
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadNotes), [&](const Statement& row) {
    at(row).note = row.Text(2);
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadTags), [&](const Statement& row) {
    at(row).tags.insert(row.Text(2));
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadVerifications), [&](const Statement& row) {
    if (!at(row).verifications[JobId{row.Int(2)}].ParseFromString(row.Blob(3))) {
      return error::CorruptFile(
          db_->path(), absl::StrCat("the verification of job ", row.Int(0), " by job ", row.Int(2),
                                    " cannot be read"));
    }
    return absl::OkStatus();
  }));
  for (auto& [job, remarked] : found) Show({job, remarked.first}, std::move(remarked.second));
  return absl::OkStatus();
}

absl::Status RemarkStore::DeleteRows(JobId job) {
  for (const char* statement : {kDeleteNote, kDeleteTags, kDeleteVerifications}) {
    TY_RETURN_IF_ERROR(db_->Prepared(statement).Bind(job.value).Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<Remarks> RemarkStore::Edit(const RemarkedJob& job) {
  if (const auto remarks = Find(job); remarks != nullptr) return *remarks;
  TY_RETURN_IF_ERROR(DeleteRows(job.number));
  return Remarks();
}

void RemarkStore::Show(const RemarkedJob& job, Remarks remarks) {
  const MutexLock lock(&mutex_);
  if (remarks.note.empty() && remarks.tags.empty() && remarks.verifications.empty()) {
    known_.erase(job.number);
  } else {
    known_[job.number] = {job.uid, std::make_shared<const Remarks>(std::move(remarks))};
  }
}

absl::Status RemarkStore::Annotate(const RemarkedJob& job, const std::optional<std::string>& note,
                                   const std::vector<std::string>& add_tags,
                                   const std::vector<std::string>& remove_tags) {
  const MutexLock file_lock(&file_mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_ASSIGN_OR_RETURN(Remarks remarks, Edit(job));
  if (note.has_value()) {
    remarks.note = *note;
    Statement& statement = db_->Prepared(note->empty() ? kDeleteNote : kPutNote);
    statement.Bind(job.number.value);
    if (!note->empty()) statement.Bind(job.uid).Bind(*note);
    TY_RETURN_IF_ERROR(statement.Run());
  }
  for (const std::string& tag : remove_tags) {
    if (remarks.tags.erase(tag) == 0) continue;
    TY_RETURN_IF_ERROR(db_->Prepared(kDeleteTag).Bind(job.number.value).Bind(tag).Run());
  }
  for (const std::string& tag : add_tags) {
    if (!remarks.tags.insert(tag).second) continue;
    TY_RETURN_IF_ERROR(db_->Prepared(kAddTag).Bind(job.number.value).Bind(job.uid).Bind(tag).Run());
  }
  TY_RETURN_IF_ERROR(transaction.Commit());
  Show(job, std::move(remarks));
  return absl::OkStatus();
}

absl::Status RemarkStore::AddVerification(const RemarkedJob& job,
                                          const v1::Verification& verification) {
  TY_ASSIGN_OR_RETURN(const JobId second_run, ParseJobName(verification.job()));
  const MutexLock file_lock(&file_mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_ASSIGN_OR_RETURN(Remarks remarks, Edit(job));
  if (!remarks.verifications.try_emplace(second_run, verification).second) {
    return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(db_->Prepared(kAddVerification)
                         .Bind(job.number.value)
                         .Bind(job.uid)
                         .Bind(second_run.value)
                         .BindBlob(verification.SerializeAsString())
                         .Run());
  TY_RETURN_IF_ERROR(transaction.Commit());
  Show(job, std::move(remarks));
  return absl::OkStatus();
}

absl::Status RemarkStore::Forget(JobId job) {
  const MutexLock file_lock(&file_mutex_);
  {
    const MutexLock lock(&mutex_);
    if (!known_.contains(job)) return absl::OkStatus();
  }
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_RETURN_IF_ERROR(DeleteRows(job));
  TY_RETURN_IF_ERROR(transaction.Commit());
  const MutexLock lock(&mutex_);
  known_.erase(job);
  return absl::OkStatus();
}

std::shared_ptr<const Remarks> RemarkStore::Find(const RemarkedJob& job) const {
  const MutexLock lock(&mutex_);
  const auto found = known_.find(job.number);
  return found == known_.end() || found->second.uid != job.uid ? nullptr : found->second.remarks;
}

std::vector<RemarkedJob> RemarkStore::ListJobs() const {
  const MutexLock lock(&mutex_);
  std::vector<RemarkedJob> jobs;
  jobs.reserve(known_.size());
  for (const auto& [number, known] : known_) jobs.push_back({number, known.uid});
  return jobs;
}

}  // namespace trainyard::store
