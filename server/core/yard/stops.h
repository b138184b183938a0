// Keeps stops that lose no work, and the devices that they free.
//
// A pending stop waits for a checkpoint: the attempt is asked for one, and stops once it is
// committed, or at a deadline. A checkpoint that was under way when the request was made is older
// than the request and does not count, because the work after it would be lost. So a stop records
// the step that the attempt had reported when it was asked.
//
// A claim keeps a device free for a job: for a nominated job it is what its victims give up, and
// for a job that shrinks or grows it is what it continues with. Claims last until their job is
// placed or gives up.
//
// None of it is stored: after a restart the next pass makes new nominations, and a worker that was
// being drained continues to drain.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/lifecycle/records.h"
#include "server/core/scheduling/placement.h"

namespace trainyard::core {

struct PendingStop {
  StopReason reason = StopReason::kPreempt;
  std::string detail;  // for the history
  JobId claimant;      // the job for which it stops; 0 if there is none
  // Uptime; the attempt stops then, with or without a checkpoint.
  int64_t deadline_us = 0;
  std::optional<int64_t> asked_at_step;  // unset if the attempt had not reported a step yet
};

// The pending stops and the claims. The class is not thread-safe.
class Stops {
 public:
  // Stops. An attempt has at most one, and has it until it ends or the stop is withdrawn.

  void Ask(AttemptId attempt, PendingStop stop);
  // Replaces the attempt's stop by `stop`, which has no claimant, if the old one has a claimant.
  // The new stop waits for the checkpoint that was already asked for, until the earlier of both
  // deadlines. Returns true if the old stop was replaced.
  bool Replace(AttemptId attempt, PendingStop stop);
  // Returns null if the attempt has none.
  const PendingStop* Find(AttemptId attempt) const;
  void Remove(AttemptId attempt) { pending_.erase(attempt); }
  // Notes a reported step that the attempt had reached before it could know of the request. Only
  // the first such report counts.
  void NoteStepBeforeRequest(AttemptId attempt, int64_t step);
  // Returns true if the attempt's stop waits for a checkpoint, and one of this step will do.
  bool IsAnsweredBy(AttemptId attempt, int64_t step) const;
  // Returns the attempts that are to stop so that this job gets their devices.
  std::vector<AttemptId> StopsFor(JobId claimant) const;

  // Claims. A device is claimed for one job at a time, and the last claim replaces earlier ones.

  void Claim(JobId job, const std::vector<DeviceKey>& devices);
  // Drops the claims of the job, and returns the workers of the devices that are no longer claimed.
  std::set<std::string> DropClaims(JobId job);
  // Notes that an attempt has been told to stop so that this job gets the devices that it claims.
  void NoteRoomMade(JobId job) { has_room_made_.insert(job); }
  bool HasRoomMade(JobId job) const { return has_room_made_.count(job) > 0; }
  const std::map<DeviceKey, JobId>& claims() const { return claims_; }
  bool has_claims() const { return !claims_.empty(); }
  // Returns the job for which the device is kept free, or 0.
  JobId ClaimOf(const DeviceKey& device) const;
  // Returns the jobs whose claims will not be filled: no stop is pending for them, and none of
  // their claimed devices is in `coming`, the devices of attempts that stop already.
  std::set<JobId> IdleClaimants(const std::vector<DeviceKey>& coming) const;

 private:
  std::map<AttemptId, PendingStop> pending_;
  std::map<DeviceKey, JobId> claims_;
  std::set<JobId> has_room_made_;  // jobs with claims for which an attempt was told to stop
};

}  // namespace trainyard::core
