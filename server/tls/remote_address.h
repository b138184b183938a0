// Names the other end of a connection.
#pragma once

#include <string>

#include <sys/socket.h>

namespace trainyard::tls {

struct RemoteAddress {
  // For people: "203.0.113.7:51234", "[2001:db8::1]:51234".
  std::string text;
  // Limits are counted by this: an address of IPv4, or the network of 64 bits that one owner of
  // IPv6 has, "2001:db8::/64".
  std::string key;
};

// Reads an address of IPv4 or IPv6. An address of IPv4 that a socket of IPv6 has accepted is shown
// as what it is. Other families give "unknown".
RemoteAddress DescribeAddress(const sockaddr_storage& address);

// Asks the system for the other end of a connected socket.
RemoteAddress RemoteAddressOf(int socket);

}  // namespace trainyard::tls
