// Defines the port to what the server remembers. It has two implementations: in memory, for tests,
// and SQLite. The same contract suite runs against both (tests/contract).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/core/lifecycle/snapshot.h"

namespace trainyard::store {

inline constexpr int64_t kEventPageMax = 1000;

// A store. One thread loads and commits; ListEvents may be called from any thread at any time.
class Store {
 public:
  virtual ~Store() = default;

  // Returns everything that was committed, except events.
  virtual absl::StatusOr<core::Snapshot> Load() = 0;

  // Commits all of `delta`, which is durable when the call returns, or nothing. `delta.revision`
  // must be one more than the store's; otherwise there are two writers, or the writer missed a
  // failure, and the call returns FAILED_PRECONDITION. Returns RESOURCE_EXHAUSTED (DISK_FULL) or
  // DATA_LOSS (CORRUPT_FILE) if the file fails. After a failure, the caller must load again.
  virtual absl::Status Commit(const core::Delta& delta) = 0;

  // Returns events of one resource and of what belongs to it (EventParent), in ascending order of
  // sequence, after the given one; `limit` is cut to kEventPageMax. An empty parent means all
  // events.
  virtual absl::StatusOr<std::vector<core::EventRecord>> ListEvents(absl::string_view parent,
                                                                    int64_t after_sequence,
                                                                    int64_t limit) = 0;
};

}  // namespace trainyard::store
