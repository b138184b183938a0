// Parses addresses by hand, because gRPC would resolve host names and accept addresses that must be
// refused here.
#include "common/rpc/address.h"

#include <sys/un.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"

namespace trainyard::rpc {
namespace {

constexpr absl::string_view kUnixPrefix = "unix:";
// One byte of sun_path is the terminating zero.
constexpr size_t kUnixPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

absl::Status BadAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("address '", text, "' ", why,
                                                 "; use unix:/path/to/server.sock or "
                                                 "tls://HOST:PORT"));
}

// Returns true for what may be the name or the address of a host. The system resolves it later.
bool IsHost(absl::string_view host) {
  const auto is_fine = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  };
  return !host.empty() && host.size() <= 253 && host.front() != '-' &&
         std::all_of(host.begin(), host.end(), is_fine);
}

}  // namespace

bool IsLoopbackHost(absl::string_view host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

std::string Address::ToString() const {
  return absl::StrCat(kind == Kind::kTls ? "tls://" : "", Target());
}

std::string Address::Target() const {
  if (kind == Kind::kUnix) return absl::StrCat(kUnixPrefix, path);
  const bool is_ipv6 = absl::StrContains(host, ':');
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  Address address;
  if (absl::StartsWith(text, kUnixPrefix)) {
    absl::string_view path = text.substr(kUnixPrefix.size());
    // gRPC also accepts unix:///path.
    if (absl::StartsWith(path, "///")) path.remove_prefix(2);
    if (path.empty() || path.front() != '/') return BadAddress(text, "has no absolute path");
    if (path.size() > kUnixPathBytesMax) {
      return BadAddress(text, absl::StrCat("has a path of ", path.size(), " bytes; sockets take ",
                                           kUnixPathBytesMax));
    }
    address.path = std::string(path);
    return address;
  }
  // "tls:lab:7070" is shorter to write as a flag.
  absl::string_view rest = text;
  const bool is_tls = absl::ConsumePrefix(&rest, "tls://") || absl::ConsumePrefix(&rest, "tls:");
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return BadAddress(text, "has no port");
  absl::string_view host = rest.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return BadAddress(text, "has an IPv6 address without brackets");
  }
  uint32_t port = 0;
  if (!absl::SimpleAtoi(rest.substr(colon + 1), &port) || port > 65535) {
    return BadAddress(text, "has a port that is no number from 0 to 65535");
  }
  if (is_tls && !IsHost(host)) return BadAddress(text, "has no host");
  if (!is_tls && !IsLoopbackHost(host)) {
    return BadAddress(text, "is no loopback address, and other hosts need TLS");
  }
  address.kind = is_tls ? Address::Kind::kTls : Address::Kind::kTcp;
  address.host = std::string(host);
  address.port = static_cast<uint16_t>(port);
  return address;
}

std::string DefaultServerAddress(absl::string_view xdg_state_home, absl::string_view home) {
  return absl::StrCat(kUnixPrefix, JoinPath(StateHome(xdg_state_home, home), "server/server.sock"));
}

}  // namespace trainyard::rpc
