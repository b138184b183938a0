// One connection of HTTP/1.1: reads its requests one after the other, and writes their answers.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/files.h"
#include "server/access/peer.h"
#include "server/http/limits.h"
#include "server/http/routes.h"

namespace trainyard::http {

// A connection whose other end is known.
struct Arrival {
  UniqueFd socket;
  access::Peer peer;
  // Becomes true with the first call that has a valid token; null for users of this host.
  std::shared_ptr<std::atomic<bool>> is_known;
};

// What sessions need of the door. It outlives them.
struct SessionEnv {
  boost::asio::io_context& io;
  const Routes& routes;
  Limits limits;
  // Returns a channel to the services for whoever is at the other end.
  std::function<std::shared_ptr<grpc::Channel>(const Arrival& arrival)> connect;
  // Returns true if a request to a port may name this host.
  std::function<bool(const std::string& host)> is_host;
  // The bytes of all bodies that are being received.
  size_t body_bytes = 0;
  // The exchanges that handlers have.
  std::atomic<int64_t> exchanges = 0;
};

class Session {
 public:
  virtual ~Session() = default;
  // Ends it once it has nothing to answer.
  virtual void Stop() = 0;
  virtual void Close() = 0;
};

// Starts to serve a connection, on the thread of the io_context. `closed` is called once it is
// over.
std::shared_ptr<Session> StartSession(Arrival arrival, SessionEnv& env,
                                      std::function<void()> closed);

}  // namespace trainyard::http
