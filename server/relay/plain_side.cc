// Calls the system with MSG_DONTWAIT, so the socket itself may block.
#include "server/relay/plain_side.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace trainyard::relay {
namespace {

// Says what a call of the system that has returned -1 means, if it was not interrupted.
ClientSide::Outcome OutcomeOfErrno() {
  const bool is_blocked = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
  return is_blocked ? ClientSide::Outcome::kBlocked : ClientSide::Outcome::kFailed;
}

}  // namespace

PlainSide::PlainSide(UniqueFd socket, access::Peer peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {}

ClientSide::Outcome PlainSide::Open() {
  const Peeked peeked = PeekProtocol(socket_.get());
  if (!peeked.is_open) return Outcome::kFailed;
  if (!peeked.protocol.has_value()) return Outcome::kBlocked;
  protocol_ = *peeked.protocol;
  return Outcome::kDone;
}

std::optional<UniqueFd> PlainSide::TakeSocket() {
  if (!peer_.is_host) return std::nullopt;
  return std::move(socket_);
}

ClientSide::Moved PlainSide::Read(absl::Span<char> into) {
  while (true) {
    const ssize_t got = recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) return {Outcome::kDone, static_cast<size_t>(got)};
    if (got == 0) return {Outcome::kClosed};
    if (errno != EINTR) return {OutcomeOfErrno()};
  }
}

ClientSide::Moved PlainSide::Write(absl::string_view bytes) {
  while (true) {
    const ssize_t sent =
        send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) return {Outcome::kDone, static_cast<size_t>(sent)};
    if (sent == 0) return {Outcome::kBlocked};
    if (errno != EINTR) return {OutcomeOfErrno()};
  }
}

void PlainSide::EndWriting() {
  (void)shutdown(socket_.get(), SHUT_WR);
}

}  // namespace trainyard::relay
