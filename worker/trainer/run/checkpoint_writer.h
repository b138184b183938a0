// Checkpoints behind the training: the loop hands over a snapshot and goes on; a thread encodes,
// writes and syncs.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::trainer {

// At most one checkpoint is in flight. Belongs to the loop's thread; the destructor waits for the
// one in flight.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(std::string checkpoints_dir);

  // What has become of a checkpoint.
  struct Finished {
    int64_t step = 0;
    int64_t request = 0;  // as given to Start
    absl::Status status;
  };

  // Needs that none is in flight. `request`: the newest request that this checkpoint answers.
  void Start(StateSnapshot snapshot, int64_t request);
  bool in_flight() const { return result_.valid(); }
  // The one in flight where it has ended; nothing otherwise.
  std::optional<Finished> Poll();
  // Waits for the one in flight.
  std::optional<Finished> Wait();

 private:
  const std::string checkpoints_dir_;
  std::future<Finished> result_;
};

}  // namespace trainyard::trainer
