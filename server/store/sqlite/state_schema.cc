// Defines the tables of trainyard.db, version by version. A version is never edited, only followed
// by the next one.
#include "server/store/sqlite/migrations.h"
#include "server/store/sqlite/state_version5.h"

namespace trainyard::store {
namespace {

constexpr char kState1[] = R"sql(
CREATE TABLE meta (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  revision INTEGER NOT NULL,
  next_job INTEGER NOT NULL,
  next_event INTEGER NOT NULL
) STRICT;
INSERT INTO meta (id, revision, next_job, next_event) VALUES (1, 0, 1, 1);

CREATE TABLE submissions (
  job INTEGER NOT NULL PRIMARY KEY,
  uid TEXT NOT NULL,
  name TEXT NOT NULL,
  user TEXT NOT NULL,
  spec BLOB NOT NULL,
  resolved_spec BLOB NOT NULL,
  device_count INTEGER NOT NULL,
  device_type TEXT NOT NULL,
  device_mixed INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  max_retries INTEGER NOT NULL,
  time_limit_us INTEGER NOT NULL,
  disconnect_keep_us INTEGER NOT NULL,
  checkpoints_kept INTEGER NOT NULL,
  cloned_from INTEGER NOT NULL,
  parent_job INTEGER,
  parent_step INTEGER,
  server_version TEXT NOT NULL
) STRICT;

CREATE TABLE jobs (
  job INTEGER NOT NULL PRIMARY KEY REFERENCES submissions (job),
  state TEXT NOT NULL,
  state_reason TEXT NOT NULL,
  state_detail TEXT NOT NULL,
  not_before_us INTEGER NOT NULL,
  failure_class TEXT NOT NULL,
  failure_reason TEXT NOT NULL,
  failure_message TEXT NOT NULL,
  stop_reason TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  fencing_token INTEGER NOT NULL,
  retries INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  run_time_us INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  step INTEGER NOT NULL,
  total_steps INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  epochs INTEGER NOT NULL,
  samples_per_s REAL,
  data_wait_fraction REAL,
  eta_us INTEGER NOT NULL,
  data_digest TEXT NOT NULL,
  model_digest TEXT NOT NULL,
  worker_version TEXT NOT NULL,
  revision INTEGER NOT NULL
) STRICT;

CREATE TABLE job_metrics (
  job INTEGER NOT NULL REFERENCES jobs (job),
  name TEXT NOT NULL,
  value REAL,
  PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs (job),
  number INTEGER NOT NULL,
  fencing_token INTEGER NOT NULL,
  state TEXT NOT NULL,
  state_reason TEXT NOT NULL,
  failure_class TEXT NOT NULL,
  failure_reason TEXT NOT NULL,
  failure_message TEXT NOT NULL,
  resume_job INTEGER,
  resume_step INTEGER,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt_ranks (
  job INTEGER NOT NULL,
  number INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  worker TEXT NOT NULL,
  device TEXT NOT NULL,
  PRIMARY KEY (job, number, rank),
  FOREIGN KEY (job, number) REFERENCES attempts (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt_parts (
  job INTEGER NOT NULL,
  number INTEGER NOT NULL,
  worker TEXT NOT NULL,
  state TEXT NOT NULL,
  outcome TEXT NOT NULL,
  failure_class TEXT NOT NULL,
  failure_reason TEXT NOT NULL,
  failure_message TEXT NOT NULL,
  step INTEGER NOT NULL,
  failed_rank INTEGER NOT NULL,
  PRIMARY KEY (job, number, worker),
  FOREIGN KEY (job, number) REFERENCES attempts (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
  name TEXT NOT NULL PRIMARY KEY,
  uid TEXT NOT NULL,
  version TEXT NOT NULL,
  hostname TEXT NOT NULL,
  address TEXT NOT NULL,
  state TEXT NOT NULL,
  state_since_us INTEGER NOT NULL,
  scheduling TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  last_seen_us INTEGER NOT NULL,
  revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE devices (
  worker TEXT NOT NULL REFERENCES workers (name),
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  type TEXT NOT NULL,
  memory_bytes INTEGER NOT NULL,
  health TEXT NOT NULL,
  health_reason TEXT NOT NULL,
  cpus TEXT NOT NULL,
  threads INTEGER NOT NULL,
  product TEXT NOT NULL,
  PRIMARY KEY (worker, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
  job INTEGER NOT NULL REFERENCES jobs (job),
  step INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  PRIMARY KEY (job, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoint_files (
  job INTEGER NOT NULL,
  step INTEGER NOT NULL,
  name TEXT NOT NULL,
  size INTEGER NOT NULL,
  hash TEXT NOT NULL,
  PRIMARY KEY (job, step, name),
  FOREIGN KEY (job, step) REFERENCES checkpoints (job, step) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  sequence INTEGER NOT NULL PRIMARY KEY,
  time_us INTEGER NOT NULL,
  parent TEXT NOT NULL,
  resource TEXT NOT NULL,
  type TEXT NOT NULL,
  actor TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_parent ON events (parent, sequence);

CREATE TABLE requests (
  request_id TEXT NOT NULL PRIMARY KEY,
  request_hash TEXT NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs (job),
  create_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql";

// In this version, the jobs of one array share a submission, requests are appended as jobs are, and
// there are tables for the rules by which the pool is shared. Two references of new jobs are not
// declared, because checking them takes a third of an insert.
constexpr char kState2[] = R"sql(
ALTER TABLE meta ADD COLUMN pool_time_us INTEGER NOT NULL DEFAULT 0;

ALTER TABLE submissions RENAME COLUMN job TO id;
ALTER TABLE submissions ADD COLUMN device_min_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN device_memory_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN device_spread INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE submissions ADD COLUMN not_before_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN time_limit_warning_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN reservation TEXT NOT NULL DEFAULT '';
ALTER TABLE submissions ADD COLUMN preemptible INTEGER NOT NULL DEFAULT 1;
ALTER TABLE submissions ADD COLUMN array_size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN array_parallel INTEGER NOT NULL DEFAULT 0;

CREATE TABLE submission_labels (
  submission INTEGER NOT NULL REFERENCES submissions (id),
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (submission, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE submission_dependencies (
  submission INTEGER NOT NULL REFERENCES submissions (id),
  position INTEGER NOT NULL,
  job INTEGER NOT NULL,
  ok INTEGER NOT NULL,
  PRIMARY KEY (submission, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs_2 (
  job INTEGER NOT NULL PRIMARY KEY,
  submission INTEGER NOT NULL,
  array INTEGER NOT NULL,
  state TEXT NOT NULL,
  state_reason TEXT NOT NULL,
  state_detail TEXT NOT NULL,
  not_before_us INTEGER NOT NULL,
  failure_class TEXT NOT NULL,
  failure_reason TEXT NOT NULL,
  failure_message TEXT NOT NULL,
  stop_reason TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  fencing_token INTEGER NOT NULL,
  retries INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  preemptions INTEGER NOT NULL,
  run_time_us INTEGER NOT NULL,
  device_time_us INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  step INTEGER NOT NULL,
  total_steps INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  epochs INTEGER NOT NULL,
  samples_per_s REAL,
  data_wait_fraction REAL,
  eta_us INTEGER NOT NULL,
  data_digest TEXT NOT NULL,
  model_digest TEXT NOT NULL,
  worker_version TEXT NOT NULL,
  revision INTEGER NOT NULL
) STRICT;
INSERT INTO jobs_2
  SELECT job, job, 0, state, state_reason, state_detail, not_before_us, failure_class,
    failure_reason, failure_message, stop_reason, attempt, fencing_token, retries, failures, 0,
    run_time_us, 0, create_us, start_us, end_us, step, total_steps, epoch, epochs, samples_per_s,
    data_wait_fraction, eta_us, data_digest, model_digest, worker_version, revision
  FROM jobs;
DROP TABLE jobs;
ALTER TABLE jobs_2 RENAME TO jobs;

CREATE TABLE requests_2 (
  job INTEGER NOT NULL PRIMARY KEY,
  request_id TEXT NOT NULL,
  request_hash TEXT NOT NULL,
  create_us INTEGER NOT NULL
) STRICT;
INSERT INTO requests_2 SELECT job, request_id, request_hash, create_us FROM requests;
DROP TABLE requests;
ALTER TABLE requests_2 RENAME TO requests;

CREATE TABLE worker_labels (
  worker TEXT NOT NULL REFERENCES workers (name),
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (worker, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE worker_failed_jobs (
  worker TEXT NOT NULL REFERENCES workers (name),
  position INTEGER NOT NULL,
  job INTEGER NOT NULL,
  PRIMARY KEY (worker, position)
) STRICT, WITHOUT ROWID;

ALTER TABLE devices ADD COLUMN island INTEGER NOT NULL DEFAULT 0;
ALTER TABLE devices ADD COLUMN quarantine TEXT NOT NULL DEFAULT '';

CREATE TABLE quotas (
  subject TEXT NOT NULL PRIMARY KEY,
  devices INTEGER NOT NULL,
  queued_jobs INTEGER NOT NULL,
  submits_per_minute INTEGER NOT NULL,
  stored_bytes INTEGER NOT NULL,
  weight INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE reservations (
  name TEXT NOT NULL PRIMARY KEY,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  actor TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE reservation_devices (
  reservation TEXT NOT NULL REFERENCES reservations (name) ON DELETE CASCADE,
  worker TEXT NOT NULL,
  device TEXT NOT NULL,
  PRIMARY KEY (reservation, worker, device)
) STRICT, WITHOUT ROWID;

CREATE TABLE reservation_subjects (
  reservation TEXT NOT NULL REFERENCES reservations (name) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  subject TEXT NOT NULL,
  PRIMARY KEY (reservation, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage (
  project TEXT NOT NULL,
  user TEXT NOT NULL,
  device_us INTEGER NOT NULL,
  PRIMARY KEY (project, user)
) STRICT, WITHOUT ROWID;
)sql";

// From this version on, the best checkpoint stays. Jobs from before it keep only the newest ones,
// as their users were promised.
constexpr char kState3[] = R"sql(
ALTER TABLE submissions ADD COLUMN keeps_best INTEGER NOT NULL DEFAULT 0;
ALTER TABLE submissions ADD COLUMN judged_by_loss INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN is_evaluated INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN loss REAL NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN accuracy REAL NOT NULL DEFAULT 0;
)sql";

// From this version on, the record shows which rank hosts which replicas, and why.
constexpr char kState4[] = R"sql(
ALTER TABLE jobs ADD COLUMN hosting TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN hosting_reason TEXT NOT NULL DEFAULT '';
)sql";

// From this version on, a job records what became of `train.precision: auto`. The jobs from before
// it have specs that name a precision, and workers say again what their devices can do when they
// register.
constexpr char kState6[] = R"sql(
ALTER TABLE jobs ADD COLUMN precision TEXT NOT NULL DEFAULT 'NONE';
ALTER TABLE devices ADD COLUMN bf16 INTEGER NOT NULL DEFAULT 0;
)sql";

// From this version on, a checkpoint records what the server found wrong with its files.
constexpr char kState7[] = R"sql(
ALTER TABLE checkpoints ADD COLUMN damage TEXT NOT NULL DEFAULT '';
)sql";

// From this version on, the logs and the metrics of a job can be deleted while the job stays.
constexpr char kState8[] = R"sql(
ALTER TABLE jobs ADD COLUMN logs_deleted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN metrics_deleted INTEGER NOT NULL DEFAULT 0;
)sql";

// From this version on, a failure records how the program of the rank ended.
constexpr char kState9[] = R"sql(
ALTER TABLE jobs ADD COLUMN failure_exit_code INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN failure_exit_code INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt_parts ADD COLUMN failure_exit_code INTEGER NOT NULL DEFAULT 0;
)sql";

// From this version on, an attempt records how strictly its ranks were kept apart from their hosts.
constexpr char kState10[] = R"sql(
ALTER TABLE attempts ADD COLUMN isolation TEXT NOT NULL DEFAULT 'UNSPECIFIED';
)sql";

// From this version on, the processors and the memory of hosts are divided among ranks. Workers say
// what their hosts have when they register, and what was placed before that holds nothing of it.
constexpr char kState11[] = R"sql(
ALTER TABLE workers ADD COLUMN host_cpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN host_memory_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt_ranks ADD COLUMN cpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt_ranks ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE quotas ADD COLUMN cpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE quotas ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
)sql";

// From this version on, a checkpoint records where its copy in a bucket is.
constexpr char kState12[] = R"sql(
ALTER TABLE checkpoints ADD COLUMN copy TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN copy_failure TEXT NOT NULL DEFAULT '';
)sql";

// From this version on, an attempt records the queued job that kept its devices, so that the server
// still knows after a restart whom it may stop for that job at any time.
constexpr char kState13[] = R"sql(
ALTER TABLE attempts ADD COLUMN guest_of INTEGER NOT NULL DEFAULT 0;
)sql";

}  // namespace

const std::vector<Migration>& StateMigrations() {
  static const auto* migrations =
      new std::vector<Migration>{kState1, kState2, kState3,  kState4,  Version5(), kState6, kState7,
                                 kState8, kState9, kState10, kState11, kState12,   kState13};
  return *migrations;
}

}  // namespace trainyard::store
