// Keeps the code archives of jobs on this host, so that each comes from the server once, however
// many attempts run it.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/cancel_token.h"
#include "worker/agent/file_owner.h"

namespace trainyard::agent {

// The code of an attempt.
struct CodeSource {
  std::string job;     // jobs/{job}
  std::string digest;  // "sha256:<64 hex>"
};

// The cache: <state_dir>/code/<64 hex>, which only this daemon can read. The class is thread-safe,
// and borrows `clock`.
class CodeCache {
 public:
  // Archives that were used longest ago are removed beyond this size.
  static constexpr int64_t kBytesMax = int64_t{2} << 30;

  // A download may take as long as the line needs, but ends when nothing has come for so long.
  static constexpr absl::Duration kSilenceMax = absl::Seconds(60);

  // Removes what downloads of an earlier daemon have left.
  CodeCache(const std::string& state_dir, Clock& clock, int64_t bytes_max = kBytesMax,
            absl::Duration silence_max = kSilenceMax);

  // Unpacks the code into `folder`, which then belongs to `owner`, or leaves nothing there. Fetches
  // the archive if it is not here. Returns INVALID_ARGUMENT (CODE_REFUSED) if it holds what no
  // archive may hold, DATA_LOSS if the server's bytes are not what the digest says, NOT_FOUND if
  // the server has no such archive, UNAVAILABLE if the server is away, or CANCELLED.
  absl::Status Unpack(v1::AgentService::StubInterface& stub, const CodeSource& source,
                      const std::string& folder, const FileOwner& owner, CancelToken& token);

 private:
  // Returns the archive, opened, from here or from the server.
  absl::StatusOr<UniqueFd> Take(v1::AgentService::StubInterface& stub, const CodeSource& source,
                                CancelToken& token);
  // Waits until nobody else fetches this archive.
  absl::Status Begin(const std::string& digits, CancelToken& token);
  void End(const std::string& digits);
  // Returns the archive if it is here and whole.
  absl::StatusOr<UniqueFd> OpenWhole(const std::string& path, const std::string& digest) const;
  void MakeRoom();

  const std::string folder_;
  Clock& clock_;
  const int64_t bytes_max_;
  const absl::Duration silence_max_;
  absl::Mutex mutex_;
  std::set<std::string> fetching_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::agent
