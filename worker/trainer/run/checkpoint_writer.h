// Writes checkpoints behind the training: the loop passes on a snapshot and continues, while a
// thread encodes, writes and syncs it.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::trainer {

// At most one checkpoint is in flight. The writer belongs to the loop's thread. Its destructor
// waits for the checkpoint in flight.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(std::string checkpoints_dir);

  // Says what became of a checkpoint.
  struct Finished {
    int64_t step = 0;
    int64_t request = 0;  // as given to Start
    absl::Status status;
  };

  // May be called while none is in flight. `request` is the newest request that this checkpoint
  // answers.
  void Start(StateSnapshot snapshot, int64_t request);
  bool in_flight() const { return result_.valid(); }
  // Returns the checkpoint in flight if it has ended.
  std::optional<Finished> Poll();
  // Waits for the checkpoint in flight. Returns nothing if there is none.
  std::optional<Finished> Wait();

 private:
  const std::string checkpoints_dir_;
  std::future<Finished> result_;
};

}  // namespace trainyard::trainer
