// Implements the store of rights on disk, with one connection for all.
#include "server/store/sqlite/sqlite_access_store.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/table.h"

namespace trainyard::store {
namespace {

constexpr char kReadUsers[] = "SELECT name, role, actor, set_time_us FROM users ORDER BY name";
constexpr char kPutUser[] =
    "INSERT INTO users (name, role, actor, set_time_us) VALUES (?, ?, ?, ?) ON CONFLICT (name) "
    "DO UPDATE SET role = excluded.role, actor = excluded.actor, set_time_us = "
    "excluded.set_time_us";
constexpr char kDeleteUser[] = "DELETE FROM users WHERE name = ?";

constexpr char kReadProjects[] = "SELECT name, is_private FROM projects ORDER BY name";
constexpr char kReadMembers[] = "SELECT project, user FROM project_members ORDER BY project, user";
constexpr char kPutProject[] = "INSERT INTO projects (name, is_private) VALUES (?, ?)";
constexpr char kPutMember[] = "INSERT INTO project_members (project, user) VALUES (?, ?)";
constexpr char kDeleteProject[] = "DELETE FROM projects WHERE name = ?";

// Times that never came are 0.
constexpr char kReadTokens[] =
    "SELECT id, hash, kind, user, scope, worker, note, create_time_us, expire_time_us, "
    "last_use_time_us, revoke_time_us, joined_key FROM tokens ORDER BY id";
constexpr char kPutToken[] =
    "INSERT INTO tokens (id, hash, kind, user, scope, worker, note, create_time_us, "
    "expire_time_us, last_use_time_us, revoke_time_us, joined_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
    "?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, "
    "last_use_time_us = excluded.last_use_time_us, revoke_time_us = excluded.revoke_time_us, "
    "joined_key = excluded.joined_key";
constexpr char kDeleteToken[] = "DELETE FROM tokens WHERE id = ?";

constexpr char kReadRemovedWorkers[] =
    "SELECT name, refused_before_us FROM removed_workers ORDER BY name";
constexpr char kPutRemovedWorker[] =
    "INSERT INTO removed_workers (name, refused_before_us) VALUES (?, ?) ON CONFLICT (name) DO "
    "UPDATE SET refused_before_us = excluded.refused_before_us";

constexpr char kAppendAudit[] =
    "INSERT INTO audit (time_us, user, real_user, address, rpc, resource, allowed, reason) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
constexpr char kReadAudit[] =
    "SELECT sequence, time_us, user, real_user, address, rpc, resource, allowed, reason FROM audit "
    "WHERE sequence < ? AND time_us > ? AND (? = '' OR user = ? OR real_user = ?) "
    "AND (? = '' OR resource = ?) AND (? = 0 OR allowed = 0) ORDER BY sequence DESC LIMIT ?";
constexpr char kDeleteAudit[] =
    "DELETE FROM audit WHERE sequence IN (SELECT sequence FROM audit ORDER BY sequence LIMIT ?) "
    "AND time_us < ?";

class SqliteAccessStore : public AccessStore {
 public:
  explicit SqliteAccessStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}

  absl::StatusOr<std::vector<access::UserRecord>> ListUsers() override;
  absl::Status PutUser(const access::UserRecord& user) override;
  absl::Status DeleteUser(const std::string& name) override;
  absl::StatusOr<std::vector<access::ProjectRecord>> ListProjects() override;
  absl::Status PutProject(const access::ProjectRecord& project) override;
  absl::Status DeleteProject(const std::string& name) override;
  absl::StatusOr<std::vector<access::TokenRecord>> ListTokens() override;
  absl::Status PutToken(const access::TokenRecord& token) override;
  absl::Status DeleteToken(const std::string& id) override;
  absl::StatusOr<std::vector<access::RemovedWorker>> ListRemovedWorkers() override;
  absl::Status PutRemovedWorker(const access::RemovedWorker& worker) override;
  absl::Status AppendAudit(const std::vector<access::AuditRecord>& entries) override;
  absl::StatusOr<std::vector<access::AuditRecord>> ListAudit(
      const access::AuditFilter& filter) override;
  absl::StatusOr<int64_t> DeleteAudit(int64_t before_us, int64_t limit) override;

 private:
  Mutex mutex_;
  std::unique_ptr<Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

absl::StatusOr<std::vector<access::UserRecord>> SqliteAccessStore::ListUsers() {
  const MutexLock lock(&mutex_);
  std::vector<access::UserRecord> users;
  const absl::Status read =
      ForEachRow(db_->Prepared(kReadUsers), [&](const Statement& row) -> absl::Status {
        access::UserRecord user{row.Text(0), access::Role::kNone, row.Text(2), row.Int(3)};
        const auto role = access::ParseRole(row.Text(1));
        if (!role.has_value()) {
          return error::CorruptFile(db_->path(), absl::StrCat("user '", user.name, "' has role '",
                                                              row.Text(1), "', which is none"));
        }
        user.role = *role;
        users.push_back(std::move(user));
        return absl::OkStatus();
      });
  TY_RETURN_IF_ERROR(read);
  return users;
}

absl::Status SqliteAccessStore::PutUser(const access::UserRecord& user) {
  const MutexLock lock(&mutex_);
  return db_->Prepared(kPutUser)
      .Bind(user.name)
      .Bind(access::RoleText(user.role))
      .Bind(user.actor)
      .Bind(user.set_time_us)
      .Run();
}

absl::Status SqliteAccessStore::DeleteUser(const std::string& name) {
  const MutexLock lock(&mutex_);
  return db_->Prepared(kDeleteUser).Bind(name).Run();
}

absl::StatusOr<std::vector<access::ProjectRecord>> SqliteAccessStore::ListProjects() {
  const MutexLock lock(&mutex_);
  std::map<std::string, access::ProjectRecord> projects;
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadProjects), [&](const Statement& row) {
    projects[row.Text(0)] = {row.Text(0), row.Int(1) != 0, {}};
    return absl::OkStatus();
  }));
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadMembers), [&](const Statement& row) {
    projects[row.Text(0)].members.insert(row.Text(1));
    return absl::OkStatus();
  }));
  std::vector<access::ProjectRecord> list;
  list.reserve(projects.size());
  for (auto& [name, project] : projects) list.push_back(std::move(project));
  return list;
}

absl::Status SqliteAccessStore::PutProject(const access::ProjectRecord& project) {
  const MutexLock lock(&mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  TY_RETURN_IF_ERROR(db_->Prepared(kDeleteProject).Bind(project.name).Run());
  TY_RETURN_IF_ERROR(
      db_->Prepared(kPutProject).Bind(project.name).Bind(int64_t{project.is_private}).Run());
  for (const std::string& member : project.members) {
    TY_RETURN_IF_ERROR(db_->Prepared(kPutMember).Bind(project.name).Bind(member).Run());
  }
  return transaction.Commit();
}

absl::Status SqliteAccessStore::DeleteProject(const std::string& name) {
  const MutexLock lock(&mutex_);
  return db_->Prepared(kDeleteProject).Bind(name).Run();
}

absl::StatusOr<std::vector<access::TokenRecord>> SqliteAccessStore::ListTokens() {
  const MutexLock lock(&mutex_);
  std::vector<access::TokenRecord> tokens;
  const auto time = [](int64_t us) {
    return us == 0 ? std::nullopt : std::make_optional(absl::FromUnixMicros(us));
  };
  TY_RETURN_IF_ERROR(
      ForEachRow(db_->Prepared(kReadTokens), [&](const Statement& row) -> absl::Status {
        access::TokenRecord token;
        token.id = row.Text(0);
        token.hash = absl::HexStringToBytes(row.Text(1));
        const auto kind = access::ParseTokenKind(row.Text(2));
        const auto scope = access::ParseTokenScope(row.Text(4));
        if (!kind.has_value() || !scope.has_value() || token.hash.size() != 32) {
          return error::CorruptFile(db_->path(),
                                    absl::StrCat("token '", token.id, "' cannot be read"));
        }
        token.kind = *kind;
        token.user = row.Text(3);
        token.scope = *scope;
        token.worker = row.Text(5);
        token.note = row.Text(6);
        token.created = absl::FromUnixMicros(row.Int(7));
        token.expires = absl::FromUnixMicros(row.Int(8));
        token.last_used = time(row.Int(9));
        token.revoked = time(row.Int(10));
        token.joined_key = row.Text(11);
        tokens.push_back(std::move(token));
        return absl::OkStatus();
      }));
  return tokens;
}

absl::Status SqliteAccessStore::PutToken(const access::TokenRecord& token) {
  const auto time = [](const std::optional<absl::Time>& value) {
    return value.has_value() ? absl::ToUnixMicros(*value) : 0;
  };
  const MutexLock lock(&mutex_);
  return db_->Prepared(kPutToken)
      .Bind(token.id)
      .Bind(absl::BytesToHexString(token.hash))
      .Bind(access::TokenKindText(token.kind))
      .Bind(token.user)
      .Bind(access::TokenScopeText(token.scope))
      .Bind(token.worker)
      .Bind(token.note)
      .Bind(absl::ToUnixMicros(token.created))
      .Bind(absl::ToUnixMicros(token.expires))
      .Bind(time(token.last_used))
      .Bind(time(token.revoked))
      .Bind(token.joined_key)
      .Run();
}

absl::Status SqliteAccessStore::DeleteToken(const std::string& id) {
  const MutexLock lock(&mutex_);
  return db_->Prepared(kDeleteToken).Bind(id).Run();
}

absl::StatusOr<std::vector<access::RemovedWorker>> SqliteAccessStore::ListRemovedWorkers() {
  const MutexLock lock(&mutex_);
  std::vector<access::RemovedWorker> workers;
  TY_RETURN_IF_ERROR(ForEachRow(db_->Prepared(kReadRemovedWorkers), [&](const Statement& row) {
    workers.push_back({row.Text(0), absl::FromUnixMicros(row.Int(1))});
    return absl::OkStatus();
  }));
  return workers;
}

absl::Status SqliteAccessStore::PutRemovedWorker(const access::RemovedWorker& worker) {
  const MutexLock lock(&mutex_);
  return db_->Prepared(kPutRemovedWorker)
      .Bind(worker.name)
      .Bind(absl::ToUnixMicros(worker.refused_before))
      .Run();
}

absl::Status SqliteAccessStore::AppendAudit(const std::vector<access::AuditRecord>& entries) {
  const MutexLock lock(&mutex_);
  Transaction transaction(*db_);
  TY_RETURN_IF_ERROR(transaction.Begin());
  for (const access::AuditRecord& entry : entries) {
    TY_RETURN_IF_ERROR(db_->Prepared(kAppendAudit)
                           .Bind(entry.time_us)
                           .Bind(entry.user)
                           .Bind(entry.real_user)
                           .Bind(entry.address)
                           .Bind(entry.rpc)
                           .Bind(entry.resource)
                           .Bind(int64_t{entry.allowed})
                           .Bind(entry.reason)
                           .Run());
  }
  return transaction.Commit();
}

absl::StatusOr<std::vector<access::AuditRecord>> SqliteAccessStore::ListAudit(
    const access::AuditFilter& filter) {
  const MutexLock lock(&mutex_);
  std::vector<access::AuditRecord> found;
  Statement& statement = db_->Prepared(kReadAudit);
  statement.Bind(filter.before_sequence).Bind(filter.after_us);
  statement.Bind(filter.user).Bind(filter.user).Bind(filter.user);
  statement.Bind(filter.resource).Bind(filter.resource);
  statement.Bind(int64_t{filter.only_refused}).Bind(filter.limit);
  TY_RETURN_IF_ERROR(ForEachRow(statement, [&](const Statement& row) {
    found.push_back({row.Int(0), row.Int(1), row.Text(2), row.Text(3), row.Text(4), row.Text(5),
                     row.Text(6), row.Int(7) != 0, row.Text(8)});
    return absl::OkStatus();
  }));
  return found;
}

absl::StatusOr<int64_t> SqliteAccessStore::DeleteAudit(int64_t before_us, int64_t limit) {
  const MutexLock lock(&mutex_);
  TY_RETURN_IF_ERROR(db_->Prepared(kDeleteAudit).Bind(limit).Bind(before_us).Run());
  return db_->ChangedRows();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AccessStore>> OpenSqliteAccessStore(const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::unique_ptr<Database> db, Database::Open(path, Database::Mode::kDurable));
  TY_RETURN_IF_ERROR(Migrate(*db, "access", AccessMigrations()));
  return std::make_unique<SqliteAccessStore>(std::move(db));
}

}  // namespace trainyard::store
