// A commit is atomic here as it is in SQLite; what differs is when it fails.
#include "tests/sim/disk.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::sim {
namespace {

template <typename Rows, typename Map, typename KeyOf>
void PutAll(const Rows& rows, Map& map, const KeyOf& key_of) {
  for (const auto& row : rows) map.insert_or_assign(key_of(row), row);
}

}  // namespace

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

void Disk::Apply(const core::Delta& delta, core::Snapshot& state) {
  state.revision = delta.revision;
  state.next_job = delta.next_job;
  state.next_event = delta.next_event;
  PutAll(delta.jobs, state.jobs, [](const auto& row) { return row.id; });
  PutAll(delta.attempts, state.attempts, [](const auto& row) { return row.id; });
  PutAll(delta.workers, state.workers, [](const auto& row) { return row.name; });
  for (const core::CheckpointRef& id : delta.deleted_checkpoints) state.checkpoints.erase(id);
  PutAll(delta.checkpoints, state.checkpoints, [](const auto& row) { return row.id; });
  PutAll(delta.requests, state.requests, [](const auto& row) { return row.request_id; });
  PutAll(delta.quotas, state.quotas, [](const auto& row) { return row.subject; });
  for (const std::string& subject : delta.deleted_quotas) state.quotas.erase(subject);
  PutAll(delta.reservations, state.reservations, [](const auto& row) { return row.name; });
  for (const std::string& name : delta.deleted_reservations) state.reservations.erase(name);
  if (delta.usage_changed) {
    state.usage.clear();
    PutAll(delta.usage, state.usage,
           [](const core::UsageRecord& row) { return core::UsageKey(row.project, row.user); });
  }
  state.pool_time_us = delta.pool_time_us;
}

}  // namespace trainyard::sim
