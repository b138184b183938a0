// Moves bytes with calls that do not block. What one side does not take is kept, and nothing more
// is read from the other side until it is gone: so the flow control of the sockets reaches through,
// and the memory of a connection is bounded. What gRPC keeps for a connection is bounded here too,
// by what is passed on to it.
#include "server/relay/connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace trainyard::relay {
namespace {

constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);
// A client that takes nothing for so long is not read by anybody any more.
constexpr absl::Duration kStallTimeout = absl::Minutes(10);
// After the last byte was sent, the client gets this long to close its side. A socket that is
// closed before could lose bytes that are still under way.
constexpr absl::Duration kLingerTimeout = absl::Seconds(5);
// The bytes that one connection moves in one direction before others have their turn.
constexpr size_t kTurnBytes = 256 * 1024;
// A client that is not known yet may send so much: a call with the largest message of the API (4
// MiB), and what HTTP/2 needs besides. gRPC keeps all of it until the call is complete.
constexpr size_t kStrangerBytesMax = 6 * 1024 * 1024;
// The calls that it may make. Whoever has a token signs in with the first one.
constexpr uint64_t kStrangerCallsMax = 200;
// Each end of the pair buffers so much in the kernel.
constexpr int kPairBytes = 64 * 1024;

}  // namespace

void Leftover::Keep(absl::string_view bytes) {
  if (bytes.empty()) {
    bytes_ = std::string();
    at_ = 0;
  } else if (bytes.data() >= bytes_.data() && bytes.data() < bytes_.data() + bytes_.size()) {
    at_ = static_cast<size_t>(bytes.data() - bytes_.data());
  } else {
    bytes_ = std::string(bytes);
    at_ = 0;
  }
}

Connection::Connection(std::unique_ptr<ClientSide> client, std::shared_ptr<ClientCalls> calls,
                       absl::Duration now)
    : client_(std::move(client)),
      calls_(std::move(calls)),
      watch_(*calls_),
      deadline_(now + kHandshakeTimeout) {}

Connection::Step Connection::ContinueHandshake() {
  switch (client_->Open()) {
    case ClientSide::Outcome::kDone:
      return Step::kContinues;
    case ClientSide::Outcome::kBlocked:
      return Step::kWaits;
    default:
      return Step::kEnds;
  }
}

absl::StatusOr<UniqueFd> Connection::Open() {
  const access::Peer& peer = client_->peer();
  *is_known_ = !peer.user.empty() || !peer.worker.empty();
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    return ErrnoStatus(errno, "cannot connect gRPC with", "a client");
  }
  plain_ = UniqueFd(pair[0]);
  UniqueFd theirs(pair[1]);
  for (const int end : pair) {
    (void)setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kPairBytes, sizeof(kPairBytes));
  }
  deadline_ = absl::InfiniteDuration();
  return theirs;
}

Connection::Step Connection::Relay(absl::Span<char> scratch, absl::Duration now) {
  const Step down = down_ended_ ? Step::kWaits : MoveDown(scratch, now);
  if (down == Step::kEnds) return Step::kEnds;
  // Nothing more is read from a client that does not take what it is sent, since gRPC would keep
  // the answers. Clients of HTTP/2 always read on, so none waits for itself.
  const bool is_behind = !down_.bytes().empty();
  const Step up = up_ended_ || is_behind ? Step::kWaits : MoveUp(scratch, now);
  if (up == Step::kEnds || (up_ended_ && down_ended_)) return Step::kEnds;
  return up == Step::kContinues || down == Step::kContinues ? Step::kContinues : Step::kWaits;
}

size_t Connection::SendUp(absl::string_view bytes) {
  if (up_dropped_) return bytes.size();
  while (true) {
    const ssize_t sent =
        send(plain_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return 0;
    up_dropped_ = true;
    return bytes.size();
  }
}

bool Connection::IsAcceptable(absl::string_view bytes, absl::Duration now) {
  // The HTTP door counts its requests itself.
  const bool is_http2 = client_->protocol() == Protocol::kHttp2;
  if (is_http2 && !watch_.TakeRequests(bytes, now)) return false;
  if (*is_known_) return true;
  received_ += bytes.size();
  return received_ <= kStrangerBytesMax && watch_.requests() <= kStrangerCallsMax;
}

Connection::Step Connection::MoveUp(absl::Span<char> scratch, absl::Duration now) {
  for (size_t moved = 0; moved < kTurnBytes;) {
    absl::string_view bytes = up_.bytes();
    if (bytes.empty()) {
      const ClientSide::Moved got = client_->Read(scratch);
      if (got.outcome == ClientSide::Outcome::kFailed) return Step::kEnds;
      if (got.outcome == ClientSide::Outcome::kClosed) {
        up_ended_ = true;
        (void)shutdown(plain_.get(), SHUT_WR);
      }
      if (got.outcome != ClientSide::Outcome::kDone) return Step::kWaits;
      bytes = absl::string_view(scratch.data(), got.bytes);
      if (!IsAcceptable(bytes, now)) return Step::kEnds;
    }
    const size_t sent = SendUp(bytes);
    up_.Keep(bytes.substr(sent));
    if (sent < bytes.size()) return Step::kWaits;
    moved += sent;
  }
  return Step::kContinues;
}

Connection::Step Connection::MoveDown(absl::Span<char> scratch, absl::Duration now) {
  for (size_t moved = 0; moved < kTurnBytes;) {
    absl::string_view bytes = down_.bytes();
    if (bytes.empty()) {
      const ssize_t got = recv(plain_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Step::kWaits;
      if (got <= 0) {
        EndDown(now);
        return Step::kWaits;
      }
      bytes = absl::string_view(scratch.data(), static_cast<size_t>(got));
      if (client_->protocol() == Protocol::kHttp2) watch_.TakeAnswers(bytes);
    }
    const ClientSide::Moved sent = client_->Write(bytes);
    if (sent.outcome == ClientSide::Outcome::kBlocked) {
      if (deadline_ == absl::InfiniteDuration()) deadline_ = now + kStallTimeout;
      down_.Keep(bytes);
      return Step::kWaits;
    }
    if (sent.outcome != ClientSide::Outcome::kDone) return Step::kEnds;
    deadline_ = absl::InfiniteDuration();
    moved += sent.bytes;
    down_.Keep(bytes.substr(sent.bytes));
  }
  return Step::kContinues;
}

void Connection::EndDown(absl::Duration now) {
  down_ended_ = true;
  up_dropped_ = true;
  up_.Keep("");
  client_->EndWriting();
  deadline_ = now + kLingerTimeout;
}

bool Connection::IsOverdue(absl::Duration uptime, absl::Time now) const {
  return uptime >= deadline_ || now >= client_->end();
}

}  // namespace trainyard::relay
