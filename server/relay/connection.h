// One connection: its handshake, and then the bytes in both directions between the client and the
// socket that gRPC has.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/files.h"
#include "server/relay/call_watch.h"
#include "server/relay/client_calls.h"
#include "server/relay/client_side.h"

namespace trainyard::relay {

// Bytes that the next reader did not take yet. It has no memory while it is empty.
class Leftover {
 public:
  absl::string_view bytes() const { return absl::string_view(bytes_).substr(at_); }
  // Keeps `bytes` alone, which may be a part of what is kept already.
  void Keep(absl::string_view bytes);

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Neither socket blocks. Each call does what can be done at once, up to a limit, so that one thread
// serves many connections in turns. The class is not thread-safe. Times are uptimes.
class Connection {
 public:
  enum class Step {
    kWaits,      // until one of the sockets can be read or written
    kContinues,  // there is more to do: at once, or, for a handshake, it has succeeded
    kEnds,       // the connection has ended or failed
  };

  Connection(std::unique_ptr<ClientSide> client, std::shared_ptr<ClientCalls> calls,
             absl::Duration now);

  Step ContinueHandshake();
  // Ends the handshake, and returns the socket for gRPC.
  absl::StatusOr<UniqueFd> Open();
  // Returns the client's own socket if it is to be served without the relay.
  std::optional<UniqueFd> TakeSocket() { return client_->TakeSocket(); }
  Step Relay(absl::Span<char> scratch, absl::Duration now);

  // Returns true if the connection has to end: the handshake takes too long, a client does not
  // take what is sent, somebody does not close his end, or what the client has shown has expired.
  bool IsOverdue(absl::Duration uptime, absl::Time now) const;

  bool is_open() const { return plain_.valid(); }
  int plain() const { return plain_.get(); }
  const ClientSide& client() const { return *client_; }
  // Becomes true as soon as it is known who the client is: at once for a user of this host and for
  // a worker, and for others when a call comes with a token that is valid. Whoever checks tokens
  // sets it, on any thread.
  const std::shared_ptr<std::atomic<bool>>& is_known() const { return is_known_; }

 private:
  // Move bytes from the client to gRPC, and back.
  Step MoveUp(absl::Span<char> scratch, absl::Duration now);
  Step MoveDown(absl::Span<char> scratch, absl::Duration now);
  // Returns false if the client has sent what nobody should: headers without end, too many calls,
  // or more than a first call has, and some calls that fail, before it is known who the client is.
  bool IsAcceptable(absl::string_view bytes, absl::Duration now);
  size_t SendUp(absl::string_view bytes);
  void EndDown(absl::Duration now);

  const std::unique_ptr<ClientSide> client_;
  UniqueFd plain_;  // our end of the pair whose other end gRPC has
  const std::shared_ptr<std::atomic<bool>> is_known_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<ClientCalls> calls_;
  CallWatch watch_;
  size_t received_ = 0;  // from a client that is not known yet
  Leftover up_;
  Leftover down_;
  bool up_ended_ = false;    // the client sends nothing more
  bool up_dropped_ = false;  // gRPC takes nothing more
  bool down_ended_ = false;  // gRPC sends nothing more, and all was sent
  absl::Duration deadline_;
};

}  // namespace trainyard::relay
