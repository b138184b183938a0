// Where a server listens: a Unix socket, "unix:/path", or a port of this host, "127.0.0.1:7070".
// Other hosts need TLS, which no channel of ours speaks yet, so their addresses are refused here
// instead of sent to in plain text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::rpc {

struct Address {
  enum class Kind { kUnix, kTcp };
  Kind kind = Kind::kUnix;
  // kUnix: the path of the socket.
  std::string path;
  // kTcp: localhost, an address in 127.0.0.0/8, or ::1.
  std::string host;
  // kTcp: 0 to 65535; 0 (any free port) makes sense for listeners only.
  uint16_t port = 0;

  // As gRPC takes it: "unix:/run/x.sock", "127.0.0.1:7070", "[::1]:7070".
  std::string ToString() const;
};

// INVALID_ARGUMENT with the value and the accepted forms.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// The socket of the server that `trainyard up` starts: unix:<state home>/trainyard/server/
// server.sock, where the state home is $XDG_STATE_HOME, or ~/.local/state where that is empty.
std::string DefaultServerAddress(absl::string_view xdg_state_home, absl::string_view home);

}  // namespace trainyard::rpc
