// Remembers when tokens of pods end that somebody has used, so that streams end with them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace trainyard::access {

// The class is thread-safe. It has one entry for each token that the cluster has vouched for and
// that has not ended, so that its size is bounded by the pods of the cluster.
class PodTokenEnds {
 public:
  // Remembers the end of a token, by its id.
  void Note(const std::string& id, absl::Time end);
  // Forgets the tokens that have ended at `now`, and returns their ids and ends.
  std::vector<std::pair<std::string, absl::Time>> TakeEnded(absl::Time now);

 private:
  Mutex mutex_;
  std::map<std::string, absl::Time> ends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::access
