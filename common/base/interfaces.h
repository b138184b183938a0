// Lists the network interfaces of this host, and chooses the address at which other hosts reach it.
// A host has several interfaces, and the first one is seldom the right one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainyard {

// An address of an interface that is up.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.1.0.2", "fd00::2"
  bool is_loopback = false;
  bool is_running = true;          // has a carrier, which a bridge without ports does not have
  bool has_default_route = false;  // the interface leads out of the host's own networks

  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// Lists the addresses in the kernel's order, IPv4 before IPv6. It leaves out link-local IPv6
// addresses, which mean nothing without a zone.
absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces();

// Chooses an interface. `wanted` is the name of an interface, an address, or a network
// ("10.1.0.0/16"). If it is empty, the choice is the interface of the default route, else the first
// that is not the loopback (one with a carrier, if there is any), else the loopback. Returns
// NOT_FOUND (INTERFACE_NOT_FOUND) with the addresses that exist, or INVALID_ARGUMENT for a
// malformed network.
absl::StatusOr<InterfaceAddress> ChooseInterface(absl::string_view wanted,
                                                 absl::Span<const InterfaceAddress> present);

// Chooses among the interfaces that this host has now.
absl::StatusOr<InterfaceAddress> FindInterface(absl::string_view wanted);

}  // namespace trainyard
