// Listens for programs of this machine, such as browsers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard::link {

struct LoopbackListener {
  UniqueFd socket;  // does not block
  int port = 0;
};

// Listens on a port of 127.0.0.1, or on a free one if `port` is 0. Returns ADDRESS_IN_USE with
// `advice` if somebody listens there.
absl::StatusOr<LoopbackListener> ListenOnLoopback(int port, const std::string& advice);

}  // namespace trainyard::link
