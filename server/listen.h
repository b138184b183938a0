// Opens the sockets that the server listens on.
#pragma once

#include <sys/types.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/listener.h"

namespace trainyard {

// Reads an address and listens on it. The socket of a server that has died is replaced; others see
// a new one only once it has `mode`: 0600 for the user of this process and root, 0666 for all users
// of this host. Returns ADDRESS_IN_USE if a living server listens there or the path is no socket,
// INVALID_ARGUMENT for ports without TLS, on which nobody would know who calls, NOT_FOUND or
// PERMISSION_DENIED for the folder of a socket, and the errors of ListenOnPort.
//
// A socket of that path in `passed` is taken from there and used as it is. Its descriptor belongs
// to the listener then. Returns FAILED_PRECONDITION if it is open to more users than `mode` says.
absl::StatusOr<Listener> Listen(absl::string_view text, mode_t mode, std::vector<int>& passed);
inline absl::StatusOr<Listener> Listen(absl::string_view text, mode_t mode = 0600) {
  std::vector<int> none;
  return Listen(text, mode, none);
}

}  // namespace trainyard
