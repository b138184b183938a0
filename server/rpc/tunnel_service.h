// Implements the tunnels of users to running ranks (trainyard/v1/tunnel.proto), and the part of the
// workers in them.
#pragma once

#include "server/rpc/services.h"
#include "server/rpc/tunnel_stream.h"
#include "server/rpc/worker_sessions.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/tunnel.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class TunnelServiceImpl : public v1::TunnelService::CallbackService {
 public:
  explicit TunnelServiceImpl(Services& services);

  TunnelReactor* OpenTunnel(grpc::CallbackServerContext* context) override;

 private:
  Services& services_;
};

// Begins the stream of a worker that serves a tunnel. `sessions` says which sessions are its own,
// and outlives the stream.
TunnelReactor* StartServeTunnel(Services& services, const WorkerSessions& sessions,
                                const access::Caller& caller);

// Adds the tunnels that wait for the worker to what it is told.
void AddTunnels(const Services& services, const std::string& worker,
                v1::SyncWorkerResponse& response);

}  // namespace trainyard::rpc
