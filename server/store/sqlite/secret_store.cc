// Implements the secrets on SQLite, with an index of their names in memory.
#include "server/store/sqlite/secret_store.h"

#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"
#include "common/tls/seal.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

constexpr char kReadSecrets[] =
    "SELECT user, name, size, create_time_us, update_time_us FROM secrets ORDER BY user, name";
constexpr char kReadSealed[] =
    "SELECT sealed FROM secrets WHERE user = ? AND name = ? ORDER BY name";
constexpr char kPutSecret[] =
    "INSERT INTO secrets (user, name, size, create_time_us, update_time_us, sealed) VALUES (?, ?, "
    "?, ?, ?, ?) ON CONFLICT (user, name) DO UPDATE SET size = excluded.size, update_time_us = "
    "excluded.update_time_us, sealed = excluded.sealed";
constexpr char kDeleteSecret[] = "DELETE FROM secrets WHERE user = ? AND name = ?";

// A value that was moved to another user or name does not open.
std::string PlaceOf(absl::string_view user, absl::string_view name) {
  return absl::StrCat(user, "\n", name);
}

absl::StatusOr<std::string> ReadOrMakeKey(const std::string& path, bool may_make) {
  if (!FileExists(path)) {
    if (!may_make) {
      return error::CorruptFile(path,
                                "it is missing, and secrets.db cannot be read without it; "
                                "restore it, or move secrets.db away to begin anew");
    }
    TY_RETURN_IF_ERROR(WriteFileAtomically(path, tls::SecretBytes(tls::kSealKeyBytes), 0600));
  }
  TY_ASSIGN_OR_RETURN(std::string key, ReadRegularFile(path));
  if (key.size() != tls::kSealKeyBytes) {
    return error::CorruptFile(
        path, absl::StrCat("it has ", key.size(), " bytes, expected ", tls::kSealKeyBytes));
  }
  return key;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SecretStore>> SecretStore::Open(const std::string& state_dir) {
  const std::string path = JoinPath(state_dir, "secrets.db");
  const bool is_new = !FileExists(path);
  // The key comes first, so that no crash leaves a database without one.
  TY_ASSIGN_OR_RETURN(std::string key, ReadOrMakeKey(JoinPath(state_dir, "secrets.key"), is_new));
  // SQLite gives its other files the mode of this one.
  TY_RETURN_IF_ERROR(OpenRegularFile(path, O_WRONLY | O_CREAT, 0600).status());
  TY_ASSIGN_OR_RETURN(auto db, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(db->Execute("PRAGMA secure_delete = ON"));
  TY_RETURN_IF_ERROR(Migrate(*db, "secrets", SecretMigrations()));
  std::unique_ptr<SecretStore> store(new SecretStore(std::move(db), std::move(key)));
  TY_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status SecretStore::Load() {
  const MutexLock file_lock(&file_mutex_);
  const MutexLock lock(&mutex_);
  return ForEachRow(db_->Prepared(kReadSecrets), [&](const Statement& row) {
    known_[{row.Text(0), row.Text(1)}] = {row.Text(1), row.Int(2), absl::FromUnixMicros(row.Int(3)),
                                          absl::FromUnixMicros(row.Int(4))};
    return absl::OkStatus();
  });
}

absl::Status SecretStore::Settle() {
  return db_->Prepared("PRAGMA wal_checkpoint(TRUNCATE)").Run();
}

absl::StatusOr<SecretInfo> SecretStore::Put(const std::string& user, const std::string& name,
                                            absl::string_view value, absl::Time now) {
  const MutexLock file_lock(&file_mutex_);
  SecretInfo info{name, static_cast<int64_t>(value.size()), now, now};
  {
    const MutexLock lock(&mutex_);
    const auto known = known_.find({user, name});
    size_t count = 0;
    for (auto at = known_.lower_bound({user, ""}); at != known_.end() && at->first.first == user;
         ++at) {
      ++count;
    }
    if (known != known_.end()) {
      info.created = known->second.created;
    } else if (count >= kSecretsOfUserMax) {
      return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_SECRETS",
                       absl::StrCat("'", user, "' has ", count,
                                    " secrets already; remove one with "
                                    "`trainyard secrets rm NAME`"));
    }
  }
  const std::string sealed = tls::Seal(key_, value, PlaceOf(user, name));
  TY_RETURN_IF_ERROR(db_->Prepared(kPutSecret)
                         .Bind(user)
                         .Bind(name)
                         .Bind(info.size)
                         .Bind(absl::ToUnixMicros(info.created))
                         .Bind(absl::ToUnixMicros(info.updated))
                         .BindBlob(sealed)
                         .Run());
  TY_RETURN_IF_ERROR(Settle());
  const MutexLock lock(&mutex_);
  known_[{user, name}] = info;
  return info;
}

absl::Status SecretStore::Delete(const std::string& user, const std::string& name) {
  const MutexLock file_lock(&file_mutex_);
  if (!Has(user, name)) {
    return MakeError(absl::StatusCode::kNotFound, error::kSecretNotFound,
                     absl::StrCat("'", user, "' has no secret '", name,
                                  "'; `trainyard secrets ls` lists those there are"));
  }
  TY_RETURN_IF_ERROR(db_->Prepared(kDeleteSecret).Bind(user).Bind(name).Run());
  {
    const MutexLock lock(&mutex_);
    known_.erase({user, name});
  }
  return Settle();
}

absl::StatusOr<std::string> SecretStore::Read(const std::string& user, const std::string& name) {
  const MutexLock file_lock(&file_mutex_);
  Statement& statement = db_->Prepared(kReadSealed).Bind(user).Bind(name);
  TY_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return error::SecretNotFound(user, name);
  const std::string sealed = statement.Blob(0);
  statement.Reset();
  auto value = tls::Unseal(key_, sealed, PlaceOf(user, name));
  if (!value.ok()) {
    return error::CorruptFile(
        db_->path(), absl::StrCat("secret '", name, "' of '", user, "': ", value.status().message(),
                                  "; set it again"));
  }
  return value;
}

bool SecretStore::Has(const std::string& user, const std::string& name) const {
  const MutexLock lock(&mutex_);
  return known_.contains({user, name});
}

std::vector<SecretInfo> SecretStore::List(const std::string& user) const {
  const MutexLock lock(&mutex_);
  std::vector<SecretInfo> list;
  for (auto at = known_.lower_bound({user, ""}); at != known_.end() && at->first.first == user;
       ++at) {
    list.push_back(at->second);
  }
  return list;
}

}  // namespace trainyard::store

namespace trainyard::error {

absl::Status SecretNotFound(absl::string_view user, absl::string_view name) {
  return MakeError(absl::StatusCode::kNotFound, kSecretNotFound,
                   absl::StrCat("'", user, "' has no secret '", name,
                                "'; set it with `trainyard secrets set ", name, "`"));
}

}  // namespace trainyard::error
