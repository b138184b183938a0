// Writes checkpoints. The snapshot moves to the thread that writes it, so that the loop can change
// its own values.
#include "worker/trainer/run/checkpoint_writer.h"

#include <chrono>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"

namespace trainyard::trainer {

CheckpointWriter::CheckpointWriter(std::string checkpoints_dir)
    : checkpoints_dir_(std::move(checkpoints_dir)) {}

void CheckpointWriter::Start(StateSnapshot snapshot, int64_t request) {
  TY_CHECK(!in_flight());
  result_ = std::async(
      std::launch::async, [directory = checkpoints_dir_, snapshot = std::move(snapshot), request] {
        absl::Status status = MakeDirectories(directory);
        if (status.ok()) {
          status = checkpoint::WriteCheckpoint(directory, snapshot.step, EncodeSnapshot(snapshot));
        }
        return Finished{.step = snapshot.step, .request = request, .status = status};
      });
}

std::optional<CheckpointWriter::Finished> CheckpointWriter::Poll() {
  const bool is_ready =
      in_flight() && result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return is_ready ? Wait() : std::nullopt;
}

std::optional<CheckpointWriter::Finished> CheckpointWriter::Wait() {
  if (!in_flight()) return std::nullopt;
  return result_.get();
}

}  // namespace trainyard::trainer
