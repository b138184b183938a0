// Sends complete checkpoints to the server, file by file, and commits them there. Each is verified
// before it is sent, and the server verifies what it receives, so that a damaged checkpoint is
// never committed. A queue decides which one is sent next (checkpoint_queue.h).
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/env.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/cancel_token.h"
#include "worker/agent/checkpoint_queue.h"
#include "worker/agent/session.h"
#include "worker/agent/upload_target.h"

namespace trainyard::agent {

// Owns one thread. It is thread-safe, and borrows all of its arguments.
class CheckpointUploader {
 public:
  using Progress = CheckpointQueue::Progress;

  // `on_change` is called on the uploader's thread when the progress of an attempt changes.
  CheckpointUploader(v1::AgentService::StubInterface& stub, Session& session, Rng& rng,
                     std::function<void()> on_change);
  ~CheckpointUploader();

  void Start();
  void Stop();

  // Sets the targets. A new checkpoint is sent at once, because a preemption may wait for it.
  void SetTargets(std::vector<UploadTarget> targets);
  Progress ProgressOf(AttemptId id) const;

 private:
  void Run();
  // Sends the next checkpoint, and returns the time until the next look is worthwhile.
  absl::Duration UploadNext(const CheckpointQueue::Upload& upload);
  absl::Status UploadStep(const UploadTarget& target, int64_t step);
  // Looks for the outputs of an attempt that has exited, and sends them. A file that changes
  // meanwhile is tried once more and then left out, so that it costs no other one.
  absl::Status UploadOutputs(const UploadTarget& target);
  absl::Status SendOutputs(const UploadTarget& target, const std::string& folder,
                           v1::CommitCheckpointRequest& commit);
  absl::Status SendFile(const UploadTarget& target, int64_t step, const std::string& path,
                        const v1::CheckpointFile& file);
  // Makes one call, which Stop can cancel.
  template <typename Request, typename Call>
  absl::Status Send(const UploadTarget& target, int64_t step, Request& request, Call call);

  v1::AgentService::StubInterface& stub_;
  Session& session_;
  const std::function<void()> on_change_;
  CancelToken token_;

  mutable absl::Mutex mutex_;
  CheckpointQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::agent
