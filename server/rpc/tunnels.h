// Remembers the tunnels that are open, and which of them wait for their worker. It also keeps their
// limits, so that no user takes what is there for all, and no worker is flooded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "server/rpc/tunnel_limits.h"
#include "trainyard/v1/tunnel.pb.h"

namespace trainyard::rpc {

class TunnelStream;

// A tunnel as its user has asked for it.
struct Tunnel {
  std::string user;  // UserActor
  std::string worker;
  AttemptId attempt;
  int64_t fencing_token = 0;
  int32_t rank = 0;
  v1::TunnelOpen open;
};

// A tunnel whose worker has come.
struct ClaimedTunnel {
  Tunnel tunnel;
  std::shared_ptr<TunnelStream> user;
};

// The tunnels. The class is thread-safe.
class Tunnels {
 public:
  explicit Tunnels(absl::Duration wait = kTunnelWait) : wait_(wait) {}

  // Returns how long a worker may take to come.
  absl::Duration wait() const { return wait_; }

  // Adds a tunnel that waits for its worker, under a name that nobody can guess. Returns
  // RESOURCE_EXHAUSTED (TOO_MANY_TUNNELS) if there are too many.
  absl::Status Add(const std::string& id, Tunnel tunnel, std::shared_ptr<TunnelStream> user);
  // Returns the tunnels that wait for the worker, by their names.
  std::map<std::string, Tunnel> WaitingFor(const std::string& worker) const;
  // Gives the tunnel to its worker, once. Returns NOT_FOUND if no such tunnel waits for that
  // worker, attempt, token and rank.
  absl::StatusOr<ClaimedTunnel> Claim(const std::string& worker, const v1::TunnelClaim& claim);
  // Forgets a tunnel that has ended.
  void Remove(const std::string& id);
  // Forgets a tunnel if it still waits. Returns true if it did.
  bool GiveUp(const std::string& id);

  // Counts a stream of a worker that has not said which tunnel it serves. Returns
  // RESOURCE_EXHAUSTED if there are too many of this client, or of all.
  absl::Status BeginUnclaimed(const std::string& client);
  void EndUnclaimed(const std::string& client);

  // Returns true if this connection should be noted in the audit log, and no like one was noted
  // just before.
  bool IsForwardNew(const std::string& about, absl::Duration uptime);

  size_t size() const;

 private:
  struct Entry {
    Tunnel tunnel;
    std::shared_ptr<TunnelStream> user;  // null once it was claimed
  };

  const absl::Duration wait_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Entry> tunnels_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> unclaimed_ ABSL_GUARDED_BY(mutex_);  // by client
  size_t all_unclaimed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, absl::Duration> forwards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::rpc
