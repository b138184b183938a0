// Calls OpenSSL with a socket that does not block.
#include "server/tls/tls_side.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <utility>

#include "common/base/check.h"
#include "server/tls/remote_address.h"

namespace trainyard::tls {
namespace {

// A client whose host or line has vanished is noticed within some two minutes.
constexpr int kKeepaliveIdleS = 60;
constexpr int kKeepaliveIntervalS = 15;
constexpr int kKeepaliveProbes = 4;
constexpr int kUnansweredMs = 120'000;

void SetTcpOptions(int socket) {
  const auto set = [socket](int level, int option, int value) {
    // The options only help. A socket without them works too.
    (void)setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalS);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMs);
}

}  // namespace

std::unique_ptr<TlsSide> TlsSide::Create(UniqueFd socket, SSL_CTX& context, absl::Time now) {
  SslPtr ssl(SSL_new(&context));
  if (ssl == nullptr) return nullptr;
  // Certificates of clients are judged by our clock, as all else is.
  X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl.get()), absl::ToTimeT(now));
  TY_CHECK(SSL_set_fd(ssl.get(), socket.get()) == 1);
  SSL_set_accept_state(ssl.get());
  SetTcpOptions(socket.get());
  return std::unique_ptr<TlsSide>(new TlsSide(std::move(socket), std::move(ssl)));
}

TlsSide::TlsSide(UniqueFd socket, SslPtr ssl) : socket_(std::move(socket)), ssl_(std::move(ssl)) {
  peer_.address = RemoteAddressOf(socket_.get()).key;
}

TlsSide::Outcome TlsSide::After(int result) {
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

TlsSide::Outcome TlsSide::Open() {
  ERR_clear_error();
  const int done = SSL_accept(ssl_.get());
  if (done != 1) return After(done);
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &protocol, &size);
  if (size == 0) return Outcome::kFailed;  // a client that names no protocol
  const absl::string_view chosen(reinterpret_cast<const char*>(protocol), size);
  protocol_ = chosen == kHttp1 ? relay::Protocol::kHttp1 : relay::Protocol::kHttp2;
  const X509Ptr certificate(SSL_get1_peer_certificate(ssl_.get()));
  // OpenSSL has verified the certificate, if there is one.
  if (certificate != nullptr) {
    const Certificate facts = FactsOf(*certificate);
    peer_.worker = facts.worker;
    peer_.certificate_begin = facts.not_before;
    certificate_end_ = facts.not_after;
  }
  return Outcome::kDone;
}

TlsSide::Moved TlsSide::Read(absl::Span<char> into) {
  ERR_clear_error();
  const int got = SSL_read(ssl_.get(), into.data(), static_cast<int>(into.size()));
  if (got <= 0) return {After(got)};
  return {Outcome::kDone, static_cast<size_t>(got)};
}

TlsSide::Moved TlsSide::Write(absl::string_view bytes) {
  ERR_clear_error();
  const int sent = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  if (sent <= 0) return {After(sent)};
  return {Outcome::kDone, static_cast<size_t>(sent)};
}

void TlsSide::EndWriting() {
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  (void)shutdown(socket_.get(), SHUT_WR);
}

}  // namespace trainyard::tls
