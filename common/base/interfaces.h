// The network interfaces of this host, and the choice of the address at which other hosts reach it:
// a host has several, and the one that comes first is seldom asked for by name.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainyard {

// One address of an interface that is up.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.1.0.2", "fd00::2"
  bool is_loopback = false;
  bool is_running = true;          // has a carrier; a bridge without ports has none
  bool has_default_route = false;  // the interface leads out of the host's own networks

  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// In the kernel's order; IPv4 before IPv6. Without link-local IPv6 addresses, which mean nothing
// without a zone.
absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces();

// `wanted` is the name of an interface, an address, or a network ("10.1.0.0/16"). Empty: the
// interface of the default route, else the first that is not the loopback (one with a carrier, if
// there is any), else the loopback. NOT_FOUND (INTERFACE_NOT_FOUND) with what there is;
// INVALID_ARGUMENT for a network that is none.
absl::StatusOr<InterfaceAddress> ChooseInterface(absl::string_view wanted,
                                                 absl::Span<const InterfaceAddress> present);

// Looks at the interfaces that this host has now.
absl::StatusOr<InterfaceAddress> FindInterface(absl::string_view wanted);

}  // namespace trainyard
