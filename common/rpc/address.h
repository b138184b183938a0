// Defines where a server listens: a Unix socket, "unix:/path", a port for other hosts with TLS,
// "tls://lab.example:7070", or a port of this host, "127.0.0.1:7070". A port without TLS on another
// host is refused here instead of receiving plain text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::rpc {

struct Address {
  enum class Kind { kUnix, kTcp, kTls };
  Kind kind = Kind::kUnix;
  // The path of the socket, for kUnix.
  std::string path;
  // The host. For kTcp: localhost, an address in 127.0.0.0/8, or ::1; for kTls: any.
  std::string host;
  // The port, for kTcp and kTls: 0 to 65535. Port 0 (any free port) makes sense only for a
  // listener.
  uint16_t port = 0;

  // Returns the address as it is read: "unix:/run/x.sock", "tls://lab:7070", "[::1]:7070".
  std::string ToString() const;
  // Returns the address as gRPC takes it, which does not say that there is TLS.
  std::string Target() const;
};

// The socket of the server that all users of a machine share.
inline constexpr absl::string_view kSystemServerAddress = "unix:/run/trainyard/trainyard.sock";

// Returns true for a host that only this machine reaches: localhost, 127.0.0.0/8 or ::1.
bool IsLoopbackHost(absl::string_view host);

// Parses an address. Returns INVALID_ARGUMENT with the value and the accepted forms otherwise.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// Returns the socket of the server that `trainyard up` starts: unix:<state home>/trainyard/server/
// server.sock, where the state home is $XDG_STATE_HOME, or ~/.local/state if that variable is
// empty.
std::string DefaultServerAddress(absl::string_view xdg_state_home, absl::string_view home);

}  // namespace trainyard::rpc
