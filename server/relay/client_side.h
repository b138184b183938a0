// The client's side of a connection: what it sends and takes as plain bytes, and who it is. Sockets
// of this host (plain_side.h) and connections of TLS (server/tls/tls_side.h) implement it.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/files.h"
#include "server/access/peer.h"
#include "server/relay/protocol.h"

namespace trainyard::relay {

// No call blocks. One thread makes the calls, which need not be the one that has made the object.
class ClientSide {
 public:
  enum class Outcome {
    kDone,
    kBlocked,  // until the socket can be read or written
    kClosed,   // the client sends nothing more
    kFailed,
  };
  struct Moved {
    Outcome outcome;
    size_t bytes = 0;  // at least 1 if the outcome is kDone
  };

  virtual ~ClientSide() = default;

  // Goes on with the handshake. The other calls below are made only after it has succeeded.
  virtual Outcome Open() = 0;
  virtual Moved Read(absl::Span<char> into) = 0;
  virtual Moved Write(absl::string_view bytes) = 0;
  // Tells the client that nothing more will be sent.
  virtual void EndWriting() = 0;

  // Says which protocol the client speaks, once Open has succeeded.
  virtual Protocol protocol() const = 0;
  // Returns the client's own socket if no bytes of it need to be looked at, once Open has
  // succeeded. It is then served without the relay.
  virtual std::optional<UniqueFd> TakeSocket() { return std::nullopt; }

  virtual int socket() const = 0;
  // Says who the client is. An address is known from the start, and the rest once Open has
  // succeeded.
  virtual const access::Peer& peer() const = 0;
  // Returns when the connection has to end, because what the client has shown expires.
  virtual absl::Time end() const { return absl::InfiniteFuture(); }
};

}  // namespace trainyard::relay
