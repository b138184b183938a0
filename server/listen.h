// Opens the sockets that the server listens on. They belong to this host, and only this user
// reaches those in the file system.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "common/rpc/address.h"

namespace trainyard {

struct Listener {
  rpc::Address address;  // with the port that was taken if port 0 was asked for
  // "localhost" has a socket for each address of the loopback interface.
  std::vector<UniqueFd> sockets;
};

// Reads an address and listens on it. The socket of a server that has died is replaced; others see
// a new one only once it has the mode 0600. Returns ADDRESS_IN_USE if a living server listens there
// or the path is no socket, INVALID_ARGUMENT for other hosts, which need TLS, and NOT_FOUND or
// PERMISSION_DENIED for the folder of a socket.
absl::StatusOr<Listener> Listen(absl::string_view text);

}  // namespace trainyard
