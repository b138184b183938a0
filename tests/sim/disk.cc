// Simulates commits. A commit is atomic here as it is in SQLite, but fails when the story says so.
#include "tests/sim/disk.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::sim {

absl::StatusOr<core::Snapshot> Disk::Load() {
  return state_;
}

absl::StatusOr<std::vector<core::EventRecord>> Disk::ListEvents(absl::string_view, int64_t,
                                                                int64_t) {
  return std::vector<core::EventRecord>();
}

absl::Status Disk::Commit(const core::Delta& delta) {
  if (delta.revision != state_.revision + 1) {
    world_.Violate("revisions have no gap",
                   absl::StrCat("commit of revision ", delta.revision, " after ", state_.revision));
    return absl::FailedPreconditionError("a gap");
  }
  if (is_full_) return error::DiskFull("the server's disk");
  if (fail_sync_) {
    fail_sync_ = false;
    if (world_.random().Chance(500)) return absl::DataLossError("fsync failed");
    on_commit(state_, delta);
    Apply(delta, state_);
    return absl::DataLossError("fsync failed");
  }
  on_commit(state_, delta);
  Apply(delta, state_);
  return absl::OkStatus();
}

void Disk::LosePower() {
  if (unsynced_.empty()) return;
  state_ = std::move(synced_);
  const int64_t kept = world_.random().Below(static_cast<int64_t>(unsynced_.size()));
  for (int64_t i = 0; i < kept; ++i) Apply(unsynced_[static_cast<size_t>(i)], state_);
  unsynced_.clear();
}

}  // namespace trainyard::sim
