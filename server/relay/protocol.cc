// Decides at the first byte that differs from the preface of HTTP/2 (RFC 9113, section 3.4).
#include "server/relay/protocol.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace trainyard::relay {
namespace {

constexpr absl::string_view kPreface = "PRI ";

}  // namespace

Peeked PeekProtocol(int socket) {
  std::array<char, kPreface.size()> first;
  ssize_t got = 0;
  do {
    got = recv(socket, first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return {std::nullopt, errno == EAGAIN || errno == EWOULDBLOCK};
  if (got == 0) return {std::nullopt, false};
  const absl::string_view bytes(first.data(), static_cast<size_t>(got));
  if (bytes == kPreface) return {Protocol::kHttp2};
  if (absl::StartsWith(kPreface, bytes)) return {std::nullopt};
  return {Protocol::kHttp1};
}

}  // namespace trainyard::relay
