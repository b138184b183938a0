// Port to what the server remembers. It has two implementations: in memory, for tests, and
// SQLite. The same contract suite runs against both (tests/contract).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/core/lifecycle/snapshot.h"

namespace trainyard::store {

inline constexpr int64_t kEventPageMax = 1000;

// One thread loads and commits; ListEvents may be called from any thread at any time.
class Store {
 public:
  virtual ~Store() = default;

  // Everything that was committed, events aside.
  virtual absl::StatusOr<core::Snapshot> Load() = 0;

  // All of `delta`, durable when it returns, or nothing. `delta.revision` must be one more than the
  // store's, else FAILED_PRECONDITION: two writers, or a writer that missed a failure.
  // RESOURCE_EXHAUSTED (DISK_FULL), DATA_LOSS (CORRUPT_FILE). After a failure, load again.
  virtual absl::Status Commit(const core::Delta& delta) = 0;

  // Events of one resource and what belongs to it (EventParent), ascending by sequence, after the
  // given one; `limit` is cut to kEventPageMax. An empty parent means all events.
  virtual absl::StatusOr<std::vector<core::EventRecord>> ListEvents(absl::string_view parent,
                                                                    int64_t after_sequence,
                                                                    int64_t limit) = 0;
};

}  // namespace trainyard::store
