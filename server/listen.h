// Prepares the addresses that the server listens on: sockets of this host that are free.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/address.h"

namespace trainyard {

// Reads an address and makes room for it: the socket of a server that has died is removed. Returns
// ADDRESS_IN_USE if a living server listens on the socket, or the path is no socket,
// INVALID_ARGUMENT for other hosts, which need TLS, and NOT_FOUND or PERMISSION_DENIED for the
// folder of a socket.
absl::StatusOr<rpc::Address> PrepareAddress(absl::string_view text);

}  // namespace trainyard
