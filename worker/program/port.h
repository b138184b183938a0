// Finds a port for the first rank of a program, where the others meet it.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard::program {

// Keeps a port from other programs of Trainyard on this host until it is destroyed. The port itself
// is free, so that the program can listen on it.
class PortClaim {
 public:
  // The system gives these ports to nobody who asks for any port (ip_local_port_range).
  static constexpr int kFirst = 20'000;
  static constexpr int kLast = 29'999;

  // Takes a port on which nobody listens. `seed` says where the search begins. Returns
  // RESOURCE_EXHAUSTED if there is none.
  static absl::StatusOr<PortClaim> Take(uint64_t seed);

  int port() const { return port_; }

 private:
  PortClaim(int port, UniqueFd claim) : port_(port), claim_(std::move(claim)) {}

  int port_;
  UniqueFd claim_;
};

}  // namespace trainyard::program
