// The attempts that have not ended, and what is known of them only while the server lives.
// Deadlines and moments are uptimes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "server/core/lifecycle/records.h"

namespace trainyard::core {

struct LiveAttempt {
  std::optional<int64_t> drain_deadline_us;  // all ranks are gone, streams may be on their way
  std::optional<int64_t> run_since_us;       // RUNNING, not yet in JobRecord::run_time_us
  int64_t placed_us = 0;                     // when its devices were allocated
  int64_t started_us = 0;                    // RUNNING since
  int64_t charged_us = 0;                    // its use of devices is accounted for until then
  int64_t safe_since_us = 0;                 // its last committed checkpoint, else its placement
  int64_t end_by_speed_us = 0;               // expected, by the rate of its steps; 0: unknown
  std::optional<int64_t> step;               // that this attempt has reported to this server
  int64_t checkpoint_request = 0;            // number of the last request; 0: none yet
  JobId guest_of;                            // the job that kept its devices; 0: nobody
  bool is_warned = false;                    // that its time limit is near
  std::map<std::string, std::map<std::string, std::string>> rendezvous;  // by worker
};

// Not thread-safe.
class LiveAttempts {
 public:
  // It must not be there yet.
  LiveAttempt& Add(const AttemptRecord& attempt);
  void Remove(const AttemptRecord& attempt);

  // Null where the attempt has ended.
  LiveAttempt* Find(AttemptId attempt);
  const LiveAttempt* Find(AttemptId attempt) const;
  // The attempt must be live.
  LiveAttempt& at(AttemptId attempt) { return attempts_.at(attempt); }
  const LiveAttempt& at(AttemptId attempt) const { return attempts_.at(attempt); }

  std::map<AttemptId, LiveAttempt>& all() { return attempts_; }
  const std::map<AttemptId, LiveAttempt>& all() const { return attempts_; }
  // Those with a part on the worker.
  const std::set<AttemptId>& On(const std::string& worker) const;

 private:
  std::map<AttemptId, LiveAttempt> attempts_;
  std::map<std::string, std::set<AttemptId>> by_worker_;  // no set is empty
};

}  // namespace trainyard::core
