// Opens the ports that the server listens on for other hosts.
#pragma once

#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "server/listener.h"

namespace trainyard {

// Listens on an address of this host, "tls://0.0.0.0:7070"; a host name has a socket for each of
// its addresses. Port 0 becomes the port that was taken. Returns ADDRESS_IN_USE, and NOT_FOUND for
// an address that this host does not have.
absl::StatusOr<Listener> ListenOnPort(rpc::Address address);

}  // namespace trainyard
