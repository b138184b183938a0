// Takes over the checkpoints of a program: folders and files that it renames into its checkpoint
// folder become checkpoints of the attempt.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::program {

// Returns the step that a name tells, its last number: 100 for "step-100", "checkpoint_100.pt" and
// "epoch=3-step=100". Returns nothing if it has none, or one that is too large.
std::optional<int64_t> StepOfName(absl::string_view name);

// Returns true for a name under which a program still writes: hidden, or with the ending .tmp or
// .part.
bool IsUnfinished(absl::string_view name);

// Looks into the folder. Only rank 0 does so. The class is not thread-safe.
class CheckpointIntake {
 public:
  // `from` is where the program renames its checkpoints to, and `to` where those of the attempt
  // lie. Both are on one file system.
  CheckpointIntake(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}

  // Takes over what is there and finished, in order of its steps. What has no number in its name
  // gets `step`. What does not fit on the disk is tried again later. Returns the number of
  // checkpoints that were made.
  int Take(int64_t step);

  int64_t last_step() const { return last_step_; }
  // Returns what went wrong, for the log of the rank.
  std::vector<std::string> TakeMistakes();

 private:
  // Returns true if it was made.
  bool TakeOne(const std::string& name, int64_t step);

  const std::string from_;
  const std::string to_;
  int64_t last_step_ = 0;
  std::set<std::string> refused_;  // names that stay where they are
  // While the disk is full, a try costs the time of reading everything, so several calls pass
  // before the next one.
  int calls_to_pass_ = 0;
  bool is_disk_full_ = false;
  std::vector<std::string> mistakes_;
};

}  // namespace trainyard::program
