// Reads the interfaces from the system, and the default route from /proc/net/route. The default
// route tells which interface other hosts are likely to reach.
#include "common/base/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

constexpr int64_t kRoutesMax = 1 << 20;

// Converts an address as the kernel gives it, of 4 or 16 bytes.
using Bytes = std::vector<uint8_t>;

std::optional<Bytes> ParseAddress(absl::string_view text) {
  std::array<uint8_t, 16> bytes{};
  const std::string name(text);
  if (inet_pton(AF_INET, name.c_str(), bytes.data()) == 1) {
    return Bytes(bytes.begin(), bytes.begin() + 4);
  }
  if (inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1) {
    return Bytes(bytes.begin(), bytes.end());
  }
  return std::nullopt;
}

struct Network {
  Bytes address;
  size_t bits = 0;

  bool Contains(const Bytes& other) const {
    if (other.size() != address.size()) return false;
    for (size_t bit = 0; bit < bits; ++bit) {
      const auto mask = static_cast<uint8_t>(0x80U >> (bit % 8));
      if (((address[bit / 8] ^ other[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

absl::StatusOr<Network> ParseNetwork(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  Network network;
  if (const auto address = ParseAddress(parts[0])) network.address = *address;
  if (network.address.empty() || !absl::SimpleAtoi(parts[1], &network.bits) ||
      network.bits > 8 * network.address.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a network; expected one like 10.1.0.0/16"));
  }
  return network;
}

// /proc/net/route has the interface, the destination and more in columns. A destination of 0 is the
// default route.
std::set<std::string> InterfacesOfDefaultRoutes() {
  std::set<std::string> names;
  const auto text = ReadFile("/proc/net/route", kRoutesMax);
  if (!text.ok()) return names;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> columns = absl::StrSplit(line, '\t', absl::SkipWhitespace());
    if (columns.size() > 1 && columns[1] == "00000000") names.insert(columns[0]);
  }
  return names;
}

std::string DescribeAll(absl::Span<const InterfaceAddress> present) {
  if (present.empty()) return "no interface that is up";
  std::string text;
  for (const InterfaceAddress& each : present) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", each.interface, " ", each.address);
  }
  return text;
}

absl::Status NotFound(absl::string_view what, absl::Span<const InterfaceAddress> present) {
  return MakeError(absl::StatusCode::kNotFound, "INTERFACE_NOT_FOUND",
                   absl::StrCat(what, "; this host has ", DescribeAll(present)));
}

absl::StatusOr<InterfaceAddress> ChooseAny(absl::Span<const InterfaceAddress> present) {
  const std::function<bool(const InterfaceAddress&)> preferences[] = {
      [](const InterfaceAddress& each) { return each.has_default_route && each.is_running; },
      [](const InterfaceAddress& each) { return !each.is_loopback && each.is_running; },
      [](const InterfaceAddress& each) { return !each.is_loopback; },
      [](const InterfaceAddress& each) { return each.is_loopback; },
  };
  for (const auto& is_good : preferences) {
    const auto found = std::find_if(present.begin(), present.end(), is_good);
    if (found != present.end()) return *found;
  }
  return NotFound("no interface with an address", present);
}

}  // namespace

absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus(errno, "cannot list", "the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  const std::set<std::string> default_routes = InterfacesOfDefaultRoutes();
  std::vector<InterfaceAddress> result;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      if ((each->ifa_flags & IFF_UP) == 0) continue;
      if (family == AF_INET6) {
        const auto* address = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
        if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
      }
      std::array<char, NI_MAXHOST> host{};
      const size_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (getnameinfo(each->ifa_addr, static_cast<socklen_t>(size), host.data(), host.size(),
                      nullptr, 0, NI_NUMERICHOST) != 0) {
        continue;
      }
      result.push_back({.interface = each->ifa_name,
                        .address = host.data(),
                        .is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0,
                        .is_running = (each->ifa_flags & IFF_RUNNING) != 0,
                        .has_default_route = default_routes.contains(each->ifa_name)});
    }
  }
  return result;
}

absl::StatusOr<InterfaceAddress> ChooseInterface(absl::string_view wanted,
                                                 absl::Span<const InterfaceAddress> present) {
  if (wanted.empty()) return ChooseAny(present);
  if (wanted.find('/') != absl::string_view::npos) {
    TY_ASSIGN_OR_RETURN(const Network network, ParseNetwork(wanted));
    for (const InterfaceAddress& each : present) {
      const auto address = ParseAddress(each.address);
      if (address.has_value() && network.Contains(*address)) return each;
    }
    return NotFound(absl::StrCat("no address in ", wanted), present);
  }
  if (const auto address = ParseAddress(wanted)) {
    for (const InterfaceAddress& each : present) {
      if (ParseAddress(each.address) == address) return each;
    }
    // All of 127.0.0.0/8 belongs to this host, though only one address of it is listed.
    if (address->size() == 4 && (*address)[0] == 127) {
      for (InterfaceAddress each : present) {
        if (!each.is_loopback) continue;
        each.address = std::string(wanted);
        return each;
      }
    }
    return NotFound(absl::StrCat("no address ", wanted), present);
  }
  for (const InterfaceAddress& each : present) {
    if (each.interface == wanted) return each;
  }
  return NotFound(absl::StrCat("no interface '", wanted, "'"), present);
}

absl::StatusOr<InterfaceAddress> FindInterface(absl::string_view wanted) {
  TY_ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> present, ListInterfaces());
  return ChooseInterface(wanted, present);
}

}  // namespace trainyard
