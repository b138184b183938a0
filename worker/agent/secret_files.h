// Gives programs their secrets: files in a file system in memory, if the host has one for it, else
// files of their owner in the run directory.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/cancel_token.h"
#include "worker/agent/file_owner.h"
#include "worker/agent/session.h"
#include "worker/agent/sweeper.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

// The values by name.
using Secrets = std::map<std::string, std::string>;

// Asks the server for the secrets of an attempt. Returns NOT_FOUND (SECRET_NOT_FOUND) if one was
// removed meanwhile, and UNAVAILABLE if the server, or a session, is to be waited for.
absl::StatusOr<Secrets> FetchSecrets(v1::AgentService::StubInterface& stub, Session& session,
                                     AttemptId attempt, int64_t fencing_token, CancelToken& token);

// The files of all attempts of this daemon. The class is thread-safe, since it does not change. It
// borrows `sweeper`.
class SecretFiles {
 public:
  // Looks for a file system in memory below the first of `places` that is one, or of those of the
  // system: /run if this daemon is root, and /dev/shm. Nobody else may have made our folder there.
  SecretFiles(const std::string& state_dir, Sweeper& sweeper)
      : SecretFiles(state_dir, sweeper, SystemPlaces()) {}
  SecretFiles(const std::string& state_dir, Sweeper& sweeper,
              const std::vector<std::string>& places);

  // Writes the files, which `owner` alone can read, in place of those that are there. In memory
  // they belong to this daemon, so that nobody else can make them larger or add others: what lies
  // there takes the memory of the host, and no limit of the attempt counts it.
  absl::Status Write(const run_dir::RunDir& dir, AttemptId attempt, const FileOwner& owner,
                     const Secrets& secrets) const;
  // Removes the files of an attempt, if there are any. However much its owner has put into the run
  // directory in their place, this takes no time: the sweeper removes it.
  void Remove(const run_dir::RunDir& dir, AttemptId attempt, const FileOwner& owner) const;
  // Removes what a crash has left of attempts that are none of these.
  void RemoveAllBut(const std::set<AttemptId>& attempts) const;

  // Returns the folder in memory below which attempts have theirs; empty if there is none.
  const std::string& base() const { return base_; }

 private:
  static std::vector<std::string> SystemPlaces();
  std::string FolderOf(AttemptId attempt) const;
  // Returns true if files of this owner can lie in memory.
  bool IsInMemory(const FileOwner& owner) const;
  absl::Status WriteInMemory(const std::string& folder, const FileOwner& owner,
                             const Secrets& secrets) const;

  std::string host_;  // tells the daemons of a host apart
  Sweeper& sweeper_;
  std::string base_;
  bool has_access_lists_ = false;  // of the file system of `base_`
};

}  // namespace trainyard::agent
