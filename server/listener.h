// Holds the sockets of one address on which the server listens.
#pragma once

#include <vector>

#include "common/base/files.h"
#include "common/rpc/address.h"

namespace trainyard {

struct Listener {
  rpc::Address address;  // with the port that was taken if port 0 was asked for
  std::vector<UniqueFd> sockets;
  bool is_passed = false;  // by the service manager, which keeps the socket after us
};

}  // namespace trainyard
