// Formats addresses with inet_ntop, and never asks a name server.
#include "server/tls/remote_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace trainyard::tls {
namespace {

constexpr size_t kNetworkBytes = 8;

std::string Text(int family, const void* bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(family, bytes, text.data(), text.size()) == nullptr ? "unknown" : text.data();
}

RemoteAddress DescribeV4(const void* bytes, uint16_t port) {
  const std::string host = Text(AF_INET, bytes);
  return {absl::StrCat(host, ":", port), host};
}

RemoteAddress DescribeV6(const sockaddr_in6& address) {
  const uint16_t port = ntohs(address.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    return DescribeV4(&address.sin6_addr.s6_addr[12], port);
  }
  in6_addr network = address.sin6_addr;
  std::fill(std::begin(network.s6_addr) + kNetworkBytes, std::end(network.s6_addr), 0);
  return {absl::StrCat("[", Text(AF_INET6, &address.sin6_addr), "]:", port),
          absl::StrCat(Text(AF_INET6, &network), "/64")};
}

}  // namespace

RemoteAddress DescribeAddress(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof(v4));
    return DescribeV4(&v4.sin_addr, ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof(v6));
    return DescribeV6(v6);
  }
  return {"unknown", "unknown"};
}

RemoteAddress RemoteAddressOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    address.ss_family = AF_UNSPEC;
  }
  return DescribeAddress(address);
}

}  // namespace trainyard::tls
