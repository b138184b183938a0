#include "tests/sim/bugs.h"

#include "tests/sim/simulation.h"

namespace trainyard::sim {

const std::vector<Bug>& Bugs() {
  static const auto* bugs = new std::vector<Bug>{
      // Server: the order of a turn, and the disk.
      {"acknowledge_before_commit", "the server answers before its turn is on the disk"},
      {"skip_the_sync", "commits are written and not synced"},
      {"skip_a_revision", "a turn with a checkpoint takes two revisions"},
      // Server: who runs what.
      {"ignore_the_token", "checkpoints of superseded attempts are taken"},
      {"lease_by_wall_clock", "a lease ends when the wall clock jumps"},
      {"lost_with_the_lease", "attempts are lost with the lease, without waiting for their end"},
      {"no_wait_after_restart", "a server that starts gives workers no time to come back"},
      {"free_at_stop_request", "devices are free when the stop is asked for, not at the exit"},
      {"place_on_unreachable", "workers that are away get ranks"},
      {"start_part_of_a_gang", "the last worker of a gang is not told"},
      {"forget_to_stop", "workers are not told to stop"},
      // Server: what becomes of jobs.
      {"repeat_requests", "a repeated submission is another job"},
      {"forget_dependents", "those who wait for a job do not hear of its end"},
      {"lose_the_place", "a failure costs the place in the queue"},
      {"hardware_costs_a_retry", "a failing device costs the job a retry"},
      {"backoff_by_wall_clock", "a backoff lasts until a wall clock says so"},
      {"resume_from_uncommitted", "an attempt starts at the last reported step"},
      {"delete_the_newest", "of too many checkpoints the newest go"},
      {"delete_the_best", "of too many checkpoints the best goes with the old ones"},
      // Server: sharing.
      {"skip_the_checkpoint_wait", "whoever is preempted or drained stops at once"},
      {"drain_without_stopping", "a drained worker keeps what it runs"},
      {"preempt_equals", "jobs of equal priority are preempted"},
      {"never_drop_claims", "devices stay claimed for those who no longer need them"},
      {"device_quota_off_by_one", "a user holds one device more than his quota"},
      {"queue_quota_off_by_one", "a user queues one job more than his quota"},
      // Worker.
      {"begin_what_has_ended", "the daemon begins an attempt that has ended"},
      {"ignore_the_lease", "the supervisor lets ranks run on without a lease"},
      {"never_kill", "the supervisor waits for ranks that do not hear SIGTERM"},
      {"believe_the_exit_code", "an exit code of 0 hides the failure in the result"},
  };
  return *bugs;
}

Catch CatchBug(const std::string& name) {
  for (uint64_t seed = 1; seed <= kBugSeeds; ++seed) {
    const Result result = Simulate(seed, name);
    if (result.is_broken) return {seed, result.rule};
  }
  return {};
}

}  // namespace trainyard::sim
