// The run directories of a simulated machine, as the daemon's port wants them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/sim/machine.h"
#include "tests/sim/trainers.h"
#include "tests/sim/world.h"
#include "worker/agent/run_dirs.h"

namespace trainyard::sim {

class SimRunDirs : public agent::RunDirs {
 public:
  SimRunDirs(World& world, Machine& machine, Trainers& trainers)
      : world_(world), machine_(machine), trainers_(trainers) {}

  // Says that a checkpoint is to be fetched from the server, or no longer.
  std::function<void(AttemptId, const agent::ResumeSource&)> on_fetch;
  std::function<void(AttemptId)> on_cancel_fetch;
  // Says that the daemon is to be woken after a while.
  std::function<void(Time)> wake_after;
  // Says that a run directory goes for good.
  std::function<void(const RunDirectory&)> on_remove;

  std::vector<agent::Attempt> Adopt() override;
  Changes TakeChanges() override;
  Sight Look(AttemptId id) override;
  void Read(agent::Attempt& attempt) override;
  absl::StatusOr<std::string> RendezvousValue(AttemptId id, const std::string& key) override;
  absl::Status Prepare(AttemptId id, const agent::DesiredAttempt& wanted) override;
  void Fetch(AttemptId id, const agent::DesiredAttempt& wanted) override;
  // No job of the simulator has secrets.
  void FetchSecrets(AttemptId, int64_t) override {}
  void CancelFetch(AttemptId id) override;
  absl::Status Assign(agent::Attempt& attempt, const agent::DesiredAttempt& wanted,
                      absl::Duration lease_expire) override;
  absl::Status Launch(const agent::Attempt& attempt) override;
  absl::Status RecordUnstarted(AttemptId id, const absl::Status& cause) override;
  absl::Status RecordDeath(AttemptId id) override;
  absl::Status RequestStop(AttemptId id, const run_dir::StopRequest& stop) override;
  absl::Status RenewLease(AttemptId id, absl::Duration expire) override;
  absl::Status Publish(AttemptId id, const std::string& key, const std::string& value) override;
  absl::Status AskCheckpoint(AttemptId id, int64_t number) override;
  absl::Status PruneCheckpoint(AttemptId id, int64_t step) override;
  void Discard(AttemptId id) override;
  absl::Status Remove(AttemptId id) override;

 private:
  // Returns the directory to write to, or DISK_FULL if the disk is full.
  absl::StatusOr<RunDirectory*> Writable(AttemptId id);

  World& world_;
  Machine& machine_;
  Trainers& trainers_;
};

}  // namespace trainyard::sim
