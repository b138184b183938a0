// Everything that the yard knows. Each member keeps itself in order and knows nothing of the
// others; what a change of one means to the others is the stepper's business.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "server/core/lifecycle/config.h"
#include "server/core/yard/accounts.h"
#include "server/core/yard/contacts.h"
#include "server/core/yard/deadlines.h"
#include "server/core/yard/ledger.h"
#include "server/core/yard/lineage.h"
#include "server/core/yard/live_attempts.h"
#include "server/core/yard/reservations.h"
#include "server/core/yard/stops.h"

namespace trainyard::core {

// Notes of what has changed since the last pass, and since the workers' orders were last looked at.
struct Changes {
  bool plan_again = true;  // something that a pass decides by
  bool has_new_jobs = false;
  std::set<JobId> jobs;                   // they wait or run since, or no longer do
  std::set<std::string> workers;          // what a pass may place on them
  std::set<std::string> touched_workers;  // their orders, and the timers of what runs there

  void Touch(const std::string& worker) {
    touched_workers.insert(worker);
    workers.insert(worker);
  }
};

// Not thread-safe.
struct YardState {
  YardState(const Config& the_config, Snapshot snapshot, Now now)
      : config(the_config),
        ledger(std::move(snapshot)),
        contacts(the_config.lease_us),
        accounts(the_config, ledger.snapshot().pool_time_us, now) {}

  const Snapshot& snapshot() const { return ledger.snapshot(); }

  Config config;
  Ledger ledger;
  Lineage lineage;
  Contacts contacts;
  LiveAttempts live;
  Stops stops;
  Accounts accounts;
  Reservations reservations;
  Changes changes;

  // Queued jobs that are not to be placed before an uptime: a backoff, a delayed start.
  Deadlines<JobId> wakes;
  // Queued jobs that wait for the end of another, by that other.
  std::map<JobId, std::set<JobId>> dependents;
  // By checkpoint: the number of jobs that have not ended and were created to start from it.
  std::map<CheckpointRef, int32_t> parents;
  Deadlines<std::string> worker_timers;
  Deadlines<AttemptId> attempt_timers;
};

}  // namespace trainyard::core
