// Holds everything that the yard knows. Each member keeps itself consistent and does not know the
// others. The stepper knows what a change of one means for the others.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/lifecycle/config.h"
#include "server/core/scheduling/speeds.h"
#include "server/core/yard/accounts.h"
#include "server/core/yard/contacts.h"
#include "server/core/yard/deadlines.h"
#include "server/core/yard/inputs.h"
#include "server/core/yard/ledger.h"
#include "server/core/yard/lineage.h"
#include "server/core/yard/live_attempts.h"
#include "server/core/yard/reservations.h"
#include "server/core/yard/stops.h"

namespace trainyard::core {

// Notes what has changed since the last pass, and since the workers' orders were last looked at.
struct Changes {
  bool plan_again = true;  // true if something has changed that a pass bases decisions on
  bool has_new_jobs = false;
  std::set<JobId> jobs;                   // jobs that have begun or ceased to wait or to run
  std::set<JobId> contacts;               // jobs whose workers have come into or out of contact
  std::set<std::string> workers;          // workers whose capacity may have changed
  std::set<std::string> touched_workers;  // workers whose orders or timers must be computed again

  void Touch(const std::string& worker) {
    touched_workers.insert(worker);
    workers.insert(worker);
  }
};

// The members of the yard. It is not thread-safe.
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
  Speeds speeds;
  Changes changes;
  std::vector<PossibleWorkers> possible;

  // Queued jobs that must not be placed before an uptime, because of a backoff or a delayed start.
  Deadlines<JobId> wakes;
  // Queued jobs that wait for the end of another job, by that other job.
  std::map<JobId, std::set<JobId>> dependents;
  // The number of jobs that have not ended and were created to start from a checkpoint, or with its
  // weights, by checkpoint.
  std::map<CheckpointRef, int32_t> parents;
  Deadlines<std::string> worker_timers;
  Deadlines<AttemptId> attempt_timers;
};

}  // namespace trainyard::core
