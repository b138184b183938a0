// Downloads what attempts need to start, in the background, and verifies every byte: checkpoints
// and code.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/env.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/cancel_token.h"
#include "worker/agent/code_cache.h"
#include "worker/agent/file_owner.h"

namespace trainyard::agent {

// Makes `folder` a complete checkpoint, or leaves nothing of it. Replaces a damaged copy that lies
// there. Resumes a broken download where it stopped. Returns NOT_FOUND if the server has no such
// checkpoint, DATA_LOSS if its bytes do not match their hashes, UNAVAILABLE if the server is away,
// or CANCELLED. What it makes belongs to `owner`.
absl::Status FetchCheckpoint(v1::AgentService::StubInterface& stub, const ResumeSource& source,
                             const std::string& folder, const FileOwner& owner, CancelToken& token);

// The files that an attempt needs to start.
struct FetchPlan {
  std::optional<ResumeSource> checkpoint = {};
  std::string checkpoint_folder = {};
  std::optional<CodeSource> code = {};
  std::string code_folder = {};
  FileOwner owner = {};
};

// Fetches for attempts, each in a thread of its own. It is thread-safe, and borrows its arguments.
class CheckpointFetcher {
 public:
  // `on_done` is called on a thread of the fetcher.
  CheckpointFetcher(v1::AgentService::StubInterface& stub, CodeCache& code, Clock& clock, Rng& rng,
                    std::function<void()> on_done);
  ~CheckpointFetcher();  // cancels all fetches and waits for them

  // Begins to fetch: first the code, then the checkpoint. UNAVAILABLE answers are tried again until
  // the fetch is cancelled. If bytes do not match their hashes, the server is asked to look at its
  // own: the fetch ends with CHECKPOINT_DAMAGED if those are damaged, and is tried again if they
  // are whole.
  void Begin(AttemptId id, FetchPlan plan);
  // Begins other work that has to be done before the attempt can start, by the same rules. `work`
  // is called again as long as it returns UNAVAILABLE.
  using Work = std::function<absl::Status(CancelToken&)>;
  void Begin(AttemptId id, Work work);
  // Cancels a fetch, if there is one, and waits for its end.
  void Cancel(AttemptId id);
  // Returns the results of the fetches that have ended since the last call.
  std::map<AttemptId, absl::Status> TakeDone();

 private:
  struct Fetch {
    CancelToken token;
    std::thread thread;
  };
  absl::Status FetchOnce(const FetchPlan& plan, CancelToken& token);
  void Run(AttemptId id, const Work& work, CancelToken& token);

  v1::AgentService::StubInterface& stub_;
  CodeCache& code_;
  Clock& clock_;
  Rng& rng_;
  const std::function<void()> on_done_;

  absl::Mutex mutex_;
  std::map<AttemptId, std::unique_ptr<Fetch>> fetches_ ABSL_GUARDED_BY(mutex_);
  std::map<AttemptId, absl::Status> done_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::agent
