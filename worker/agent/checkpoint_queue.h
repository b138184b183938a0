// Decides which checkpoint is sent next, and knows which ones the server has. These are the
// decisions of the checkpoint uploader (checkpoint_uploader.h), without its thread and its calls.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/backoff.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "worker/agent/upload_target.h"

namespace trainyard::agent {

// The queue. It is not thread-safe, and borrows `rng`.
class CheckpointQueue {
 public:
  struct Progress {
    // True if the attempt has exited, and all its complete checkpoints are on the server or given
    // up.
    bool done = false;
    std::set<int64_t> committed;  // steps of the checkpoints on the server
  };
  struct Upload {
    UploadTarget target;
    int64_t step = 0;
  };

  explicit CheckpointQueue(Rng& rng);

  // Sets all attempts whose checkpoints may be missing on the server, and forgets all others.
  // Returns false if nothing has changed.
  bool SetTargets(std::vector<UploadTarget> targets);

  // Returns the oldest checkpoint that is still to be sent.
  std::optional<Upload> Next() const;
  // Notes how an upload ended. Returns nothing if the next one may follow at once, and otherwise
  // the pause that the failure calls for.
  std::optional<absl::Duration> Ended(AttemptId id, int64_t step, const absl::Status& status);
  // Returns the pause when there is no session, so that nothing can be sent.
  absl::Duration PauseWithoutSession() { return backoff_.Next(); }

  Progress ProgressOf(AttemptId id) const;

 private:
  struct State {
    std::set<int64_t> committed;
    std::set<int64_t> given_up;
    std::map<int64_t, int> failures;  // by step
  };

  std::optional<int64_t> NextStepOf(const UploadTarget& target) const;

  Backoff backoff_;
  std::vector<UploadTarget> targets_;
  std::map<AttemptId, State> states_;
};

}  // namespace trainyard::agent
