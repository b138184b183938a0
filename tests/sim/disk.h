// Simulates the server's disk; it is the store of the simulator. Data that is written is safe
// against the death of the process, but only data that is synced is safe against the loss of power.
// A commit may meet a full disk, or a crash in its middle.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "server/store/store.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

class Disk : public store::Store {
 public:
  explicit Disk(World& world) : world_(world) {}

  // Called with each delta once it is durable, and the state before and after it.
  std::function<void(const core::Snapshot& before, const core::Delta& delta)> on_commit;

  absl::StatusOr<core::Snapshot> Load() override;
  absl::Status Commit(const core::Delta& delta) override;
  absl::StatusOr<std::vector<core::EventRecord>> ListEvents(absl::string_view, int64_t,
                                                            int64_t) override;

  void SetFull(bool is_full) { is_full_ = is_full; }
  // Makes the next commit fail as a sync fails. Chance decides which part of it is on the disk.
  void FailNextSync() { fail_sync_ = true; }
  // Loses the unsynced commits from some point on.
  void LosePower();

  const core::Snapshot& state() const { return state_; }

 private:
  World& world_;
  bool is_full_ = false;
  bool fail_sync_ = false;
  core::Snapshot state_;   // as the server reads it
  core::Snapshot synced_;  // unused unless syncs are skipped
  std::vector<core::Delta> unsynced_;
};

}  // namespace trainyard::sim
