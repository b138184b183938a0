// Gives programs their secrets: files of their owner in a file system in memory, if the host has
// one for it, else in the run directory.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/cancel_token.h"
#include "worker/agent/file_owner.h"
#include "worker/agent/session.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

// The values by name.
using Secrets = std::map<std::string, std::string>;

// Asks the server for the secrets of an attempt. Returns NOT_FOUND (SECRET_NOT_FOUND) if one was
// removed meanwhile, and UNAVAILABLE if the server, or a session, is to be waited for.
absl::StatusOr<Secrets> FetchSecrets(v1::AgentService::StubInterface& stub, Session& session,
                                     AttemptId attempt, int64_t fencing_token, CancelToken& token);

// The files of all attempts of this daemon. The class is thread-safe, since it does not change.
class SecretFiles {
 public:
  // Looks for a file system in memory below the first of `places` that is one, or of those of the
  // system: /run if this daemon is root, and /dev/shm. Nobody else may have made our folder there.
  explicit SecretFiles(const std::string& state_dir) : SecretFiles(state_dir, SystemPlaces()) {}
  SecretFiles(const std::string& state_dir, const std::vector<std::string>& places);

  // Writes the files, which belong to `owner` and have mode 0600, in place of those that are there.
  absl::Status Write(const run_dir::RunDir& dir, AttemptId attempt, const FileOwner& owner,
                     const Secrets& secrets) const;
  // Removes the files of an attempt, if there are any.
  void Remove(const run_dir::RunDir& dir, AttemptId attempt, const FileOwner& owner) const;
  // Removes what a crash has left of attempts that are none of these.
  void RemoveAllBut(const std::set<AttemptId>& attempts) const;

  // Returns the folder in memory below which attempts have theirs; empty if there is none.
  const std::string& base() const { return base_; }

 private:
  static std::vector<std::string> SystemPlaces();
  std::string FolderOf(AttemptId attempt) const;

  std::string host_;  // tells the daemons of a host apart
  std::string base_;
};

}  // namespace trainyard::agent
