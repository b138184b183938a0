// Keeps the attempts that have not ended, and what is known of them only while the server lives.
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
  std::optional<int64_t> drain_deadline_us;  // all ranks are gone, but streams may be on their way
  // The start of the RUNNING time that JobRecord::run_time_us does not contain yet.
  std::optional<int64_t> run_since_us;
  int64_t placed_us = 0;      // when its devices were allocated
  int64_t started_us = 0;     // when it became RUNNING
  int64_t charged_us = 0;     // its use of devices is charged up to this time
  int64_t safe_since_us = 0;  // its last committed checkpoint, else its placement
  // The expected end by the rate of its steps; 0 if unknown.
  int64_t end_by_speed_us = 0;
  // The step that this attempt has reported to this server.
  std::optional<int64_t> step;
  // The number of the last request; 0 if there is none yet.
  int64_t checkpoint_request = 0;
  bool is_warned = false;  // true if it was warned that its time limit is near
  std::map<std::string, std::map<std::string, std::string>> rendezvous;  // by worker
};

// The live attempts. The class is not thread-safe.
class LiveAttempts {
 public:
  // Adds an attempt, which must be new.
  LiveAttempt& Add(const AttemptRecord& attempt);
  void Remove(const AttemptRecord& attempt);

  // Returns null if the attempt has ended.
  LiveAttempt* Find(AttemptId attempt);
  const LiveAttempt* Find(AttemptId attempt) const;
  // Returns the attempt, which must be live.
  LiveAttempt& at(AttemptId attempt) { return attempts_.at(attempt); }
  const LiveAttempt& at(AttemptId attempt) const { return attempts_.at(attempt); }

  std::map<AttemptId, LiveAttempt>& all() { return attempts_; }
  const std::map<AttemptId, LiveAttempt>& all() const { return attempts_; }
  // Returns the attempts that have a part on the worker.
  const std::set<AttemptId>& On(const std::string& worker) const;

 private:
  std::map<AttemptId, LiveAttempt> attempts_;
  std::map<std::string, std::set<AttemptId>> by_worker_;  // contains no empty set
};

}  // namespace trainyard::core
