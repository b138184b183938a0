// Implements the catalogue on SQLite.
#include "server/store/sqlite/spec_store.h"

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

constexpr char kReadNames[] = "SELECT name, last_version FROM spec_names ORDER BY name";
constexpr char kReadSummaries[] =
    "SELECT name, version, summary FROM saved_specs ORDER BY name, version";
constexpr char kReadSpecs[] =
    "SELECT spec, resolved_spec FROM saved_specs WHERE name = ? AND version = ? ORDER BY version";
constexpr char kPutName[] =
    "INSERT INTO spec_names (name, last_version) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET "
    "last_version = excluded.last_version";
constexpr char kPutSpec[] =
    "INSERT INTO saved_specs (name, version, summary, spec, resolved_spec) VALUES (?, ?, ?, ?, ?)";
constexpr char kDeleteSpec[] = "DELETE FROM saved_specs WHERE name = ? AND version = ?";
constexpr char kDeleteSpecs[] = "DELETE FROM saved_specs WHERE name = ?";

std::vector<std::string> CodeDigests(const v1::SavedSpec& saved) {
  std::vector<std::string> digests;
  for (const std::string& digest : {saved.code(), saved.code_origin().diff_digest()}) {
    if (!digest.empty()) digests.push_back(digest);
  }
  return digests;
}

SpecStore::Summary SummaryOf(const v1::SavedSpec& saved) {
  auto summary = std::make_shared<v1::SavedSpec>(saved);
  summary->clear_spec();
  summary->clear_resolved_spec();
  return summary;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpecStore>> SpecStore::Open(const std::string& path) {
  TY_ASSIGN_OR_RETURN(auto db, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(Migrate(*db, "specs", SpecMigrations()));
  std::unique_ptr<SpecStore> store(new SpecStore(std::move(db)));
  TY_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status SpecStore::Load() {
  const MutexLock file_lock(&file_mutex_);
  const MutexLock lock(&mutex_);
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadNames), [&](const Statement& row) {
    names_[row.Text(0)].last_version = row.Int32(1);
    return absl::OkStatus();
  }));
  return ForEachRow(db_->Prepared(kReadSummaries), [&](const Statement& row) {
    auto summary = std::make_shared<v1::SavedSpec>();
    if (summary->ParseFromString(row.Blob(2))) {
      Insert(row.Text(0), row.Int32(1), std::move(summary));
    } else {
      TellDamage(SpecName({row.Text(0), row.Int32(1)}), "the saved spec is not listed",
                 absl::DataLossError("its summary cannot be read"));
    }
    return absl::OkStatus();
  });
}

void SpecStore::Insert(const std::string& name, int32_t version, Summary summary) {
  for (const std::string& digest : CodeDigests(*summary)) code_[digest].insert({name, version});
  Name& its = names_[name];
  its.last_version = std::max(its.last_version, version);
  its.versions[version] = std::move(summary);
  ++count_;
}

void SpecStore::Erase(const std::string& name, int32_t version) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  const auto its = found->second.versions.find(version);
  if (its == found->second.versions.end()) return;
  for (const std::string& digest : CodeDigests(*its->second)) {
    std::set<SpecId>& users = code_[digest];
    users.erase({name, version});
    if (users.empty()) code_.erase(digest);
  }
  found->second.versions.erase(its);
  --count_;
}

absl::StatusOr<v1::SavedSpec> SpecStore::Put(const std::string& name, v1::SavedSpec saved) {
  std::vector<std::pair<std::string, v1::SavedSpec>> one;
  one.emplace_back(name, std::move(saved));
  TY_ASSIGN_OR_RETURN(std::vector<v1::SavedSpec> put, PutAll(std::move(one)));
  return std::move(put.front());
}

absl::StatusOr<int32_t> SpecStore::NextVersion(const std::string& name) const {
  const MutexLock lock(&mutex_);
  if (count_ >= kSavedSpecsMax) {
    return MakeError(absl::StatusCode::kResourceExhausted, "CATALOGUE_FULL",
                     absl::StrCat("the catalogue has ", count_,
                                  " versions already; delete some with `trainyard specs rm`"));
  }
  const auto known = names_.find(name);
  return known == names_.end() ? 1 : known->second.last_version + 1;
}

absl::StatusOr<std::vector<v1::SavedSpec>> SpecStore::PutAll(
    std::vector<std::pair<std::string, v1::SavedSpec>> all) {
  const MutexLock file_lock(&file_mutex_);
  std::vector<v1::SavedSpec> put;
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  for (auto& [name, saved] : all) {
    TY_ASSIGN_OR_RETURN(const int32_t version, NextVersion(name));
    saved.set_name(SpecName({name, version}));
    TY_RETURN_IF_ERROR(db_->Prepared(kPutName).Bind(name).Bind(version).Run());
    TY_RETURN_IF_ERROR(db_->Prepared(kPutSpec)
                           .Bind(name)
                           .Bind(version)
                           .BindBlob(SummaryOf(saved)->SerializeAsString())
                           .BindBlob(saved.spec().SerializeAsString())
                           .BindBlob(saved.resolved_spec().SerializeAsString())
                           .Run());
    put.push_back(std::move(saved));
  }
  TY_RETURN_IF_ERROR(transaction.Commit());
  const MutexLock lock(&mutex_);
  for (const v1::SavedSpec& saved : put) {
    const SpecId id = *ParseSpecName(saved.name());
    Insert(id.name, id.version, SummaryOf(saved));
  }
  return put;
}

absl::StatusOr<SpecStore::Summary> SpecStore::Get(const SpecId& id) const {
  Summary found = Find(id);
  if (found != nullptr) return found;
  std::vector<std::string> names;
  ForEachNewest("", [&names](const Summary& newest) {
    names.push_back(ParseSpecName(newest->name())->name);
    return true;
  });
  return error::SpecNotFound(id, names);
}

absl::StatusOr<v1::SavedSpec> SpecStore::Read(const SpecId& id) {
  TY_ASSIGN_OR_RETURN(const Summary summary, Get(id));
  v1::SavedSpec saved = *summary;
  TY_ASSIGN_OR_RETURN(const SpecId exact, ParseSpecName(saved.name()));
  const MutexLock file_lock(&file_mutex_);
  Statement& row = db_->Prepared(kReadSpecs).Bind(exact.name).Bind(exact.version);
  TY_ASSIGN_OR_RETURN(const bool is_there, row.Step());
  // It may have been deleted in the meantime.
  if (!is_there) return error::SpecNotFound(exact, {});
  const bool is_whole = saved.mutable_spec()->ParseFromString(row.Blob(0)) &&
                        saved.mutable_resolved_spec()->ParseFromString(row.Blob(1));
  row.Reset();
  if (!is_whole) {
    return error::CorruptFile(db_->path(), absl::StrCat("the specs of ", saved.name(),
                                                        " cannot be read; delete it with "
                                                        "`trainyard specs rm`"));
  }
  return saved;
}

absl::StatusOr<int32_t> SpecStore::Delete(const SpecId& id) {
  const MutexLock file_lock(&file_mutex_);
  TY_RETURN_IF_ERROR(Get(id).status());
  Statement& statement = db_->Prepared(id.version == 0 ? kDeleteSpecs : kDeleteSpec).Bind(id.name);
  if (id.version != 0) statement.Bind(id.version);
  TY_RETURN_IF_ERROR(statement.Run());
  const MutexLock lock(&mutex_);
  const int64_t before = count_;
  if (id.version != 0) {
    Erase(id.name, id.version);
  } else {
    std::map<int32_t, Summary>& versions = names_[id.name].versions;
    while (!versions.empty()) Erase(id.name, versions.begin()->first);
  }
  return static_cast<int32_t>(before - count_);
}

SpecStore::Summary SpecStore::Find(const SpecId& id) const {
  const MutexLock lock(&mutex_);
  const auto its = names_.find(id.name);
  if (its == names_.end() || its->second.versions.empty()) return nullptr;
  if (id.version == 0) return its->second.versions.rbegin()->second;
  const auto version = its->second.versions.find(id.version);
  return version == its->second.versions.end() ? nullptr : version->second;
}

std::vector<SpecStore::Summary> SpecStore::VersionsOf(const std::string& name) const {
  const MutexLock lock(&mutex_);
  std::vector<Summary> versions;
  const auto its = names_.find(name);
  if (its == names_.end()) return versions;
  for (auto at = its->second.versions.rbegin(); at != its->second.versions.rend(); ++at) {
    versions.push_back(at->second);
  }
  return versions;
}

void SpecStore::ForEachNewest(const std::string& after,
                              absl::FunctionRef<bool(const Summary&)> visit) const {
  const MutexLock lock(&mutex_);
  for (auto at = names_.upper_bound(after); at != names_.end(); ++at) {
    if (!at->second.versions.empty() && !visit(at->second.versions.rbegin()->second)) return;
  }
}

bool SpecStore::WasUsed(const std::string& name) const {
  const MutexLock lock(&mutex_);
  return names_.count(name) > 0;
}

bool SpecStore::IsCodeUsed(const std::string& digest,
                           absl::FunctionRef<bool(const v1::SavedSpec&)> accept) const {
  const MutexLock lock(&mutex_);
  const auto users = code_.find(digest);
  if (users == code_.end()) return false;
  for (const SpecId& id : users->second) {
    if (accept(*names_.at(id.name).versions.at(id.version))) return true;
  }
  return false;
}

}  // namespace trainyard::store

namespace trainyard::error {

absl::Status SpecNotFound(const SpecId& id, const std::vector<std::string>& names) {
  const std::string nearest = NearestWord(id.name, names);
  const bool is_known = nearest == id.name;
  return MakeError(
      absl::StatusCode::kNotFound, kSpecNotFound,
      absl::StrCat(
          "there is no saved spec ", id.name, id.version == 0 ? "" : absl::StrCat("@", id.version),
          is_known ? absl::StrCat("; `trainyard specs history ", id.name, "` lists its versions")
          : nearest.empty() ? "; `trainyard specs ls` lists them"
                            : absl::StrCat("; did you mean ", nearest, "?")));
}

}  // namespace trainyard::error
