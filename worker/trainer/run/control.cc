// Answers each request once, whether it came as a file or as a signal.
#include "worker/trainer/run/control.h"

#include "common/base/log.h"
#include "worker/run_dir/control.h"

namespace trainyard::trainer {

bool ControlReader::CheckpointRequested() {
  seen_signals_ = signals_.checkpoint_requests.load(std::memory_order_relaxed);
  const auto request = run_dir::ReadCheckpointRequest(dir_);
  if (request.ok()) {
    seen_file_ = *request;
  } else if (seen_file_ >= 0) {
    LogWarning("cannot read the checkpoint request", {{"error", request.status().ToString()}});
    seen_file_ = -1;  // so that the warning is given once
  }
  return seen_file_ > answered_file_ || seen_signals_ > answered_signals_;
}

int64_t ControlReader::AnswerCheckpoint() {
  answered_signals_ = seen_signals_;
  if (seen_file_ > answered_file_) answered_file_ = seen_file_;
  return answered_file_;
}

}  // namespace trainyard::trainer
