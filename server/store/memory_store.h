// A store that forgets at the end of the process. Shows in plain code what a store does; the tests
// and the simulator use it.
#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/store/store.h"

namespace trainyard::store {

class MemoryStore : public Store {
 public:
  absl::StatusOr<core::Snapshot> Load() override;
  absl::Status Commit(const core::Delta& delta) override;
  absl::StatusOr<std::vector<core::EventRecord>> ListEvents(absl::string_view parent,
                                                            int64_t after_sequence,
                                                            int64_t limit) override;

 private:
  absl::Mutex mutex_;
  core::Snapshot snapshot_ ABSL_GUARDED_BY(mutex_);
  std::vector<core::EventRecord> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::store
