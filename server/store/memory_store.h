// Keeps records in memory until the process ends. The tests use it.
#pragma once

#include <mutex>
#include <string>
#include <vector>

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
  absl::Status Check(const core::Delta& delta) const;

  std::mutex mutex_;
  core::Snapshot snapshot_;                // guarded by mutex_
  std::vector<core::EventRecord> events_;  // guarded by mutex_
};

}  // namespace trainyard::store
