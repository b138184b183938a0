// Defines the tables of secrets.db and notify.db, version by version. A version is never edited,
// only followed by the next one.
#include "server/store/sqlite/migrations.h"

namespace trainyard::store {
namespace {

constexpr char kSecrets1[] = R"sql(
CREATE TABLE secrets (
  user TEXT NOT NULL,
  name TEXT NOT NULL,
  size INTEGER NOT NULL,
  create_time_us INTEGER NOT NULL,
  update_time_us INTEGER NOT NULL,
  sealed BLOB NOT NULL,
  PRIMARY KEY (user, name)
) STRICT, WITHOUT ROWID;
)sql";

constexpr char kNotify1[] = R"sql(
CREATE TABLE targets (
  user TEXT NOT NULL,
  name TEXT NOT NULL,
  webhook TEXT NOT NULL,
  mail TEXT NOT NULL,
  events INTEGER NOT NULL,
  signing_key TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  PRIMARY KEY (user, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
  number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  user TEXT NOT NULL,
  target TEXT NOT NULL,
  webhook TEXT NOT NULL,
  mail TEXT NOT NULL,
  event TEXT NOT NULL,
  job INTEGER NOT NULL,
  message TEXT NOT NULL,
  state TEXT NOT NULL,
  result TEXT NOT NULL,
  tries INTEGER NOT NULL,
  create_time_us INTEGER NOT NULL,
  last_try_us INTEGER NOT NULL,
  next_try_us INTEGER NOT NULL
) STRICT;

CREATE INDEX deliveries_by_user ON deliveries (user, number);
CREATE INDEX deliveries_due ON deliveries (next_try_us) WHERE state = 'PENDING';

CREATE TABLE progress (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  last_event INTEGER NOT NULL
) STRICT;
)sql";

}  // namespace

const std::vector<Migration>& SecretMigrations() {
  static const auto* migrations = new std::vector<Migration>{kSecrets1};
  return *migrations;
}

const std::vector<Migration>& NotifyMigrations() {
  static const auto* migrations = new std::vector<Migration>{kNotify1};
  return *migrations;
}

}  // namespace trainyard::store
