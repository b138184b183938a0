// Moves bytes with the non-blocking calls of OpenSSL and the system. What one side does not take is
// kept, and nothing more is read from the other side until it is gone: so the flow control of TCP
// reaches through, and the memory of a connection is bounded. What gRPC keeps for a connection is
// bounded here too, by what is passed on to it.
#include "server/tls/connection.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "common/base/check.h"

namespace trainyard::tls {
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

Connection::Connection(UniqueFd socket, SslPtr ssl, RemoteAddress remote, absl::Duration now)
    : socket_(std::move(socket)),
      ssl_(std::move(ssl)),
      remote_(std::move(remote)),
      deadline_(now + kHandshakeTimeout) {
  TY_CHECK(SSL_set_fd(ssl_.get(), socket_.get()) == 1);
  SSL_set_accept_state(ssl_.get());
}

Connection::Outcome Connection::After(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return Outcome::kBlocked;
    case SSL_ERROR_ZERO_RETURN:
      return Outcome::kClosed;
    default:
      ERR_clear_error();
      return Outcome::kFailed;
  }
}

Connection::Step Connection::ContinueHandshake() {
  ERR_clear_error();
  const int done = SSL_accept(ssl_.get());
  if (done == 1) return Step::kContinues;
  return After(done) == Outcome::kBlocked ? Step::kWaits : Step::kEnds;
}

absl::StatusOr<UniqueFd> Connection::Open() {
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &protocol, &size);
  if (size == 0) return absl::InvalidArgumentError("the client names no protocol");
  const X509Ptr certificate(SSL_get1_peer_certificate(ssl_.get()));
  // OpenSSL has verified the certificate, if there is one.
  if (certificate != nullptr) {
    const Certificate facts = FactsOf(*certificate);
    worker_ = facts.worker;
    *is_known_ = !worker_.empty();
    certificate_begin_ = facts.not_before;
    certificate_end_ = facts.not_after;
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    return ErrnoStatus(errno, "cannot connect gRPC with", remote_.text);
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
  const Step up = up_ended_ || is_behind ? Step::kWaits : MoveUp(scratch);
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

bool Connection::IsAcceptable(absl::string_view bytes) {
  if (!headers_.Take(bytes)) return false;
  if (*is_known_) return true;
  received_ += bytes.size();
  return received_ <= kStrangerBytesMax && headers_.requests() <= kStrangerCallsMax;
}

Connection::Step Connection::MoveUp(absl::Span<char> scratch) {
  for (size_t moved = 0; moved < kTurnBytes;) {
    absl::string_view bytes = up_.bytes();
    if (bytes.empty()) {
      ERR_clear_error();
      const int got = SSL_read(ssl_.get(), scratch.data(), static_cast<int>(scratch.size()));
      if (got <= 0) {
        const Outcome outcome = After(got);
        if (outcome == Outcome::kFailed) return Step::kEnds;
        if (outcome == Outcome::kClosed) {
          up_ended_ = true;
          (void)shutdown(plain_.get(), SHUT_WR);
        }
        return Step::kWaits;
      }
      bytes = absl::string_view(scratch.data(), static_cast<size_t>(got));
      if (!IsAcceptable(bytes)) return Step::kEnds;
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
    }
    ERR_clear_error();
    const int sent = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
    if (sent <= 0) {
      if (After(sent) != Outcome::kBlocked) return Step::kEnds;
      if (deadline_ == absl::InfiniteDuration()) deadline_ = now + kStallTimeout;
      down_.Keep(bytes);
      return Step::kWaits;
    }
    deadline_ = absl::InfiniteDuration();
    moved += static_cast<size_t>(sent);
    down_.Keep(bytes.substr(static_cast<size_t>(sent)));
  }
  return Step::kContinues;
}

void Connection::EndDown(absl::Duration now) {
  down_ended_ = true;
  up_dropped_ = true;
  up_.Keep("");
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  (void)shutdown(socket_.get(), SHUT_WR);
  deadline_ = now + kLingerTimeout;
}

bool Connection::IsOverdue(absl::Duration uptime, absl::Time now) const {
  return uptime >= deadline_ || now >= certificate_end_;
}

}  // namespace trainyard::tls
