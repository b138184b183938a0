// One connection of TLS: its handshake, and then the bytes in both directions between the client
// and the socket that gRPC has.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <openssl/ssl.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/files.h"
#include "common/tls/openssl.h"
#include "server/tls/header_watch.h"
#include "server/tls/remote_address.h"

namespace trainyard::tls {

// Describes a client when its connection opens.
struct Peer {
  RemoteAddress remote;
  // The worker that has shown its certificate, or "".
  std::string worker;
  // The time from which that certificate is valid.
  absl::Time certificate_begin = {};
  // Becomes true as soon as it is known who the client is: at once for a worker, and for others
  // when a call comes with a token that is valid. Whoever checks tokens sets it, on any thread.
  std::shared_ptr<std::atomic<bool>> is_known = {};
};

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

// Both sockets do not block. Each call does what can be done at once, up to a limit, so that one
// thread serves many connections in turns. The class is not thread-safe.
class Connection {
 public:
  enum class Step {
    kWaits,      // until one of the sockets can be read or written
    kContinues,  // there is more to do: at once, or, for a handshake, it has succeeded
    kEnds,       // the connection has ended or failed
  };

  // `now` is the uptime.
  Connection(UniqueFd socket, SslPtr ssl, RemoteAddress remote, absl::Duration now);

  Step ContinueHandshake();
  // Ends the handshake, and returns the socket for gRPC.
  absl::StatusOr<UniqueFd> Open();
  Step Relay(absl::Span<char> scratch, absl::Duration now);

  // Returns true if the connection has to end: the handshake takes too long, a client does not
  // take what is sent, somebody does not close his end, or the client's certificate has expired.
  bool IsOverdue(absl::Duration uptime, absl::Time now) const;

  bool is_open() const { return plain_.valid(); }
  int socket() const { return socket_.get(); }
  int plain() const { return plain_.get(); }
  const RemoteAddress& remote() const { return remote_; }
  // Says who the client is, once the handshake has succeeded.
  Peer peer() const { return {remote_, worker_, certificate_begin_, is_known_}; }

 private:
  enum class Outcome { kBlocked, kClosed, kFailed };

  // Move bytes from the client to gRPC, and back.
  Step MoveUp(absl::Span<char> scratch);
  Step MoveDown(absl::Span<char> scratch, absl::Duration now);
  // Returns false if the client has sent what nobody should: headers without end, or more than a
  // first call has, and some calls that fail, before it is known who the client is.
  bool IsAcceptable(absl::string_view bytes);
  // Says what a call of OpenSSL that did not succeed means.
  Outcome After(int result);
  size_t SendUp(absl::string_view bytes);
  void EndDown(absl::Duration now);

  // The order matters: the socket is closed after OpenSSL has let it go.
  UniqueFd socket_;
  SslPtr ssl_;
  UniqueFd plain_;  // our end of the pair whose other end gRPC has
  const RemoteAddress remote_;
  std::string worker_;
  absl::Time certificate_begin_;
  absl::Time certificate_end_ = absl::InfiniteFuture();
  const std::shared_ptr<std::atomic<bool>> is_known_ = std::make_shared<std::atomic<bool>>(false);
  HeaderWatch headers_;
  size_t received_ = 0;  // from a client that is not known yet
  Leftover up_;
  Leftover down_;
  bool up_ended_ = false;    // the client sends nothing more
  bool up_dropped_ = false;  // gRPC takes nothing more
  bool down_ended_ = false;  // gRPC sends nothing more, and all was sent
  absl::Duration deadline_;  // the uptime
};

}  // namespace trainyard::tls
