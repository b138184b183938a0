// Defines the tables of access.db, version by version. A version is never edited, only followed by
// the next one.
#include "server/store/sqlite/migrations.h"

namespace trainyard::store {
namespace {

constexpr char kAccess1[] = R"sql(
CREATE TABLE users (
  name TEXT NOT NULL PRIMARY KEY,
  role TEXT NOT NULL,
  actor TEXT NOT NULL,
  set_time_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE projects (
  name TEXT NOT NULL PRIMARY KEY,
  is_private INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE project_members (
  project TEXT NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
  user TEXT NOT NULL,
  PRIMARY KEY (project, user)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
  sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  time_us INTEGER NOT NULL,
  user TEXT NOT NULL,
  real_user TEXT NOT NULL,
  address TEXT NOT NULL,
  rpc TEXT NOT NULL,
  resource TEXT NOT NULL,
  allowed INTEGER NOT NULL,
  reason TEXT NOT NULL
) STRICT;

CREATE INDEX audit_by_resource ON audit (resource, sequence);
CREATE INDEX audit_by_user ON audit (user, sequence);
)sql";

constexpr char kAccess2[] = R"sql(
CREATE TABLE tokens (
  id TEXT NOT NULL PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  user TEXT NOT NULL,
  scope TEXT NOT NULL,
  worker TEXT NOT NULL,
  note TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  expire_time_us INTEGER NOT NULL,
  last_use_time_us INTEGER NOT NULL,
  revoke_time_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql";

constexpr char kAccess3[] = R"sql(
ALTER TABLE tokens ADD COLUMN joined_key TEXT NOT NULL DEFAULT '';
)sql";

constexpr char kAccess4[] = R"sql(
CREATE TABLE removed_workers (
  name TEXT NOT NULL PRIMARY KEY,
  refused_before_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql";

}  // namespace

const std::vector<Migration>& AccessMigrations() {
  static const auto* migrations =
      new std::vector<Migration>{kAccess1, kAccess2, kAccess3, kAccess4};
  return *migrations;
}

}  // namespace trainyard::store
