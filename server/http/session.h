// One connection of HTTP/1.1: reads its requests one after the other, and writes their answers.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "server/access/peer.h"
#include "server/http/body_bytes.h"
#include "server/http/limits.h"
#include "server/http/routes.h"

namespace trainyard::http {

// A connection whose other end is known.
struct Arrival {
  UniqueFd socket;
  access::Peer peer;
  // Becomes true with the first call that has a valid token; null for users of this host.
  std::shared_ptr<std::atomic<bool>> is_known;
  // Limits are counted by this: the user, or the network of the address. The door sets it.
  std::string client = {};
};

// The parts of the door that sessions need. It outlives them.
struct SessionEnv {
  boost::asio::io_context& io;
  const Routes& routes;
  Limits limits;
  // Returns a channel to the services for whoever is at the other end.
  std::function<std::shared_ptr<grpc::Channel>(const Arrival& arrival)> connect;
  // Returns true if a request to a port may name this host.
  std::function<bool(const std::string& host)> is_host;
  // Looks at each request first: see DoorOptions. It may be null.
  std::function<std::optional<Response>(const access::Peer& peer, Request& request)> guard;
  // Asks the services whether the other end may make calls with the token of the request, if any.
  // `done` is called once, by any thread.
  std::function<void(const ExchangePtr& exchange, std::function<void(const absl::Status&)> done)>
      check_caller;
  BodyBytes body_bytes;
  // The exchanges that handlers have.
  std::atomic<int64_t> exchanges = 0;
};

class Session {
 public:
  virtual ~Session() = default;
  // Ends it once it has nothing to answer.
  virtual void Stop() = 0;
  virtual void Close() = 0;
  // Returns true if it has made a request, and is that of a user of this host or has shown a valid
  // token.
  virtual bool is_admitted() const = 0;
  // Returns true while it waits for a request, or the rest of one.
  virtual bool is_idle() const = 0;
};

// Starts to serve a connection, on the thread of the io_context. `closed` is called once it is
// over.
std::shared_ptr<Session> StartSession(Arrival arrival, SessionEnv& env,
                                      std::function<void()> closed);

}  // namespace trainyard::http
