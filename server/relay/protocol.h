// Tells which protocol a client speaks. HTTP/2, which gRPC needs, and HTTP/1.1 come on the same
// sockets.
#pragma once

#include <optional>

namespace trainyard::relay {

enum class Protocol { kHttp2, kHttp1 };

// Looks at the first bytes that wait on a socket, without taking them. HTTP/2 begins with "PRI ",
// which is no method of HTTP/1.1. Returns nothing if too few bytes have come; `is_open` says
// whether more may come.
struct Peeked {
  std::optional<Protocol> protocol;
  bool is_open = true;
};
Peeked PeekProtocol(int socket);

}  // namespace trainyard::relay
