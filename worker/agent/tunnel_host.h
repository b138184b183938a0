// Serves the tunnels of users to ranks of this host. Each has threads of its own, so that nothing
// that a user does there can block the daemon.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/session.h"
#include "worker/agent/tunnel_helper.h"
#include "worker/agent/tunnel_run.h"

namespace trainyard::agent {

// Owns the threads of the tunnels. It is thread-safe, and borrows `stub` and `session`.
class TunnelHost {
 public:
  // The server keeps the same limit, so that no tunnel is left to time out.
  static constexpr size_t kTunnelsMax = 128;

  // `helper` is the path of trainyard-enter.
  TunnelHost(v1::AgentService::StubInterface& stub, Session& session, std::string helper);
  ~TunnelHost();

  // Serves the tunnel, unless that is being done already. Without a target the user is told that
  // the rank does not run.
  void Serve(const WantedTunnel& wanted, std::optional<TunnelTarget> target);
  // Ends all tunnels and their threads.
  void Stop();

  size_t size();

 private:
  // Joins the threads of tunnels that have ended.
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  v1::AgentService::StubInterface& stub_;
  Session& session_;
  const std::string helper_;
  absl::Mutex mutex_;
  std::map<std::string, std::unique_ptr<TunnelRun>> runs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::agent
