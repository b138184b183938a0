// Implements the queue of checkpoints to be hashed.
#include "server/runtime/checkpoint_verifier.h"

#include <string>
#include <utility>

#include "common/base/errors.h"
#include "common/base/log.h"

namespace trainyard::runtime {

void CheckpointVerifier::Verify(core::CheckpointRef id, Done done) {
  {
    const MutexLock lock(&mutex_);
    std::vector<Done>& waiting = waiting_[id];
    waiting.push_back(std::move(done));
    if (waiting.size() > 1) return;
    queue_.push_back(id);
    if (queue_.size() > 1) return;
  }
  executor_.Post([this] { VerifyFirst(); });
}

void CheckpointVerifier::Stop() {
  std::vector<Done> refused;
  {
    const MutexLock lock(&mutex_);
    while (queue_.size() > 1) {
      for (Done& done : waiting_.extract(queue_.back()).mapped())
        refused.push_back(std::move(done));
      queue_.pop_back();
    }
  }
  for (const Done& done : refused) {
    done(absl::UnavailableError("the server is shutting down; try again"));
  }
}

void CheckpointVerifier::VerifyFirst() {
  core::CheckpointRef id;
  {
    const MutexLock lock(&mutex_);
    id = queue_.front();
  }
  const auto record = board_.FindCheckpoint(id);
  if (record == nullptr) {
    Finish(error::CheckpointNotFound(CheckpointName(id.job, id.step)));
  } else {
    Judge(*record);
  }
}

void CheckpointVerifier::Judge(const core::CheckpointRecord& seen) {
  absl::StatusOr<std::string> damage = blobs_.FindDamage(seen.files);
  if (!damage.ok() || *damage == seen.damage) {
    Finish(damage.status());
    return;
  }
  const std::string name = CheckpointName(seen.id.job, seen.id.step);
  if (damage->empty()) {
    LogInfo("a checkpoint is whole again", {{"checkpoint", name}});
  } else {
    LogError("a checkpoint is damaged; look at the disk of the server's state directory",
             {{"checkpoint", name}, {"damage", *damage}});
  }
  runtime_.Post(core::JudgeCheckpoint{seen, *std::move(damage)},
                [this](const absl::StatusOr<core::Reply>& reply) { Finish(reply.status()); });
}

void CheckpointVerifier::Finish(const absl::Status& status) {
  core::CheckpointRef id;
  std::vector<Done> waiting;
  bool is_last = false;
  {
    const MutexLock lock(&mutex_);
    id = queue_.front();
    queue_.pop_front();
    waiting = std::move(waiting_.extract(id).mapped());
    is_last = queue_.empty();
  }
  if (!is_last) executor_.Post([this] { VerifyFirst(); });
  const auto record = board_.FindCheckpoint(id);
  for (const Done& done : waiting) {
    if (!status.ok()) {
      done(status);
    } else if (record == nullptr) {
      done(error::CheckpointNotFound(CheckpointName(id.job, id.step)));
    } else {
      done(record);
    }
  }
}

}  // namespace trainyard::runtime
