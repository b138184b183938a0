// The door for HTTP/1.1: serves the calls of the API as JSON, with the rights and the limits that
// the same caller has with gRPC.
//
// The door never reads from a request who calls. Each connection gets a channel of its own to the
// services, which know that channel's other end as the peer that the kernel or TLS has proved. From
// there on a call is one of gRPC: the gate of server/rpc admits it by the table of rules, and the
// audit log has it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/files.h"
#include "grpcpp/channel.h"
#include "server/access/peer.h"
#include "server/http/exchange.h"
#include "server/http/limits.h"
#include "server/http/metrics_page.h"

namespace trainyard::http {

struct DoorOptions {
  // Returns a channel on which calls are those of the peer, or null if that is not possible now.
  // `is_known`, which may be null, becomes true with the first call that has a valid token. It is
  // called by any thread.
  std::function<std::shared_ptr<grpc::Channel>(const access::Peer& peer,
                                               const std::shared_ptr<std::atomic<bool>>& is_known)>
      connect;
  // Returns true if a request to a port may name this host.
  std::function<bool(const std::string& host)> is_host = [](const std::string&) { return true; };
  // Looks at each request before anything else does, and may change its headers. What it returns is
  // the answer, and the connection ends with it. It is called by the thread of the door.
  std::function<std::optional<Response>(const access::Peer& peer, Request& request)> guard;
  // Writes what GET /metrics answers. Without it, there is no such path.
  WriteMetrics write_metrics = nullptr;
  Limits limits = {};
};

// Owns the connections, their thread, and some that read large requests.
class Door {
 public:
  explicit Door(DoorOptions options);
  // Closes all connections, and waits for calls. The services must have ended them, or must end
  // them when their clients go.
  ~Door();

  // Serves a connection. It may be called from any thread.
  void Take(UniqueFd socket, access::Peer peer, std::shared_ptr<std::atomic<bool>> is_known);
  // Answers what was begun, and takes no further requests.
  void Stop();
  size_t connections() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::http
