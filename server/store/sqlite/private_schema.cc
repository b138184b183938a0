// Defines the tables of secrets.db, notify.db, specs.db, remarks.db and sweeps.db, version by
// version. A version is never edited, only followed by the next one.
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

constexpr char kSpecs1[] = R"sql(
CREATE TABLE spec_names (
  name TEXT NOT NULL PRIMARY KEY,
  last_version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE saved_specs (
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  summary BLOB NOT NULL,
  spec BLOB NOT NULL,
  resolved_spec BLOB NOT NULL,
  PRIMARY KEY (name, version)
) STRICT;
)sql";

constexpr char kRemarks1[] = R"sql(
CREATE TABLE notes (
  job INTEGER NOT NULL PRIMARY KEY,
  uid TEXT NOT NULL,
  note TEXT NOT NULL
) STRICT;

CREATE TABLE tags (
  job INTEGER NOT NULL,
  uid TEXT NOT NULL,
  tag TEXT NOT NULL,
  PRIMARY KEY (job, tag)
) STRICT, WITHOUT ROWID;

CREATE TABLE verifications (
  job INTEGER NOT NULL,
  uid TEXT NOT NULL,
  second_run INTEGER NOT NULL,
  verification BLOB NOT NULL,
  PRIMARY KEY (job, second_run)
) STRICT, WITHOUT ROWID;
)sql";

constexpr char kSweeps1[] = R"sql(
CREATE TABLE sweeps (
  number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL,
  user TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  request_id TEXT NOT NULL,
  request_hash TEXT NOT NULL,
  spec BLOB NOT NULL,
  options BLOB NOT NULL
) STRICT;

CREATE TABLE entries (
  sweep INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  kind TEXT NOT NULL,
  trial INTEGER NOT NULL,
  rung INTEGER NOT NULL,
  step INTEGER NOT NULL,
  value REAL,
  can_pause INTEGER NOT NULL,
  donor INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  text TEXT NOT NULL,
  time_us INTEGER NOT NULL,
  PRIMARY KEY (sweep, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE trial_jobs (
  sweep INTEGER NOT NULL,
  trial INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  job INTEGER NOT NULL,
  PRIMARY KEY (sweep, trial, generation)
) STRICT, WITHOUT ROWID;
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

const std::vector<Migration>& SpecMigrations() {
  static const auto* migrations = new std::vector<Migration>{kSpecs1};
  return *migrations;
}

const std::vector<Migration>& RemarkMigrations() {
  static const auto* migrations = new std::vector<Migration>{kRemarks1};
  return *migrations;
}

const std::vector<Migration>& SweepMigrations() {
  static const auto* migrations = new std::vector<Migration>{kSweeps1};
  return *migrations;
}

}  // namespace trainyard::store
