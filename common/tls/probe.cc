// Makes one handshake with OpenSSL and looks at what it has shown.
#include "common/tls/probe.h"

#include <netdb.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/sign_in_errors.h"
#include "common/base/status_macros.h"
#include "common/tls/openssl.h"

namespace trainyard::tls {
namespace {

// HTTP/2, as the extension of TLS has it: each name after its length.
constexpr unsigned char kAlpn[] = {2, 'h', '2'};

class Probe {
 public:
  Probe(const std::string& host, uint16_t port, absl::Duration timeout)
      : host_(host), port_(port), timeout_(timeout), deadline_(Clock::Real()->Uptime() + timeout) {}

  absl::StatusOr<std::vector<Certificate>> Run() {
    TY_RETURN_IF_ERROR(Connect());
    const SslContextPtr context(SSL_CTX_new(TLS_client_method()));
    TY_CHECK(context != nullptr);
    SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
    const SslPtr ssl(SSL_new(context.get()));
    TY_CHECK(ssl != nullptr && SSL_set_fd(ssl.get(), socket_.get()) == 1);
    SSL_set_tlsext_host_name(ssl.get(), host_.c_str());
    SSL_set_alpn_protos(ssl.get(), kAlpn, sizeof(kAlpn));
    TY_RETURN_IF_ERROR(Handshake(*ssl));
    std::vector<Certificate> chain;
    STACK_OF(X509)* shown = SSL_get_peer_cert_chain(ssl.get());
    for (int i = 0; i < sk_X509_num(shown); ++i) {
      chain.push_back(FactsOf(*sk_X509_value(shown, i)));
    }
    if (chain.empty()) return Failed("it shows no certificate");
    return chain;
  }

 private:
  absl::Status Failed(absl::string_view cause) const {
    return absl::UnavailableError(
        absl::StrCat("cannot look at the certificate of ", host_, ":", port_, ": ", cause));
  }

  absl::Status Wait(short events) {
    pollfd waited = {socket_.get(), events, 0};
    while (true) {
      const absl::Duration left = deadline_ - Clock::Real()->Uptime();
      const int ready =
          left <= absl::ZeroDuration()
              ? 0
              : poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
      if (ready > 0) return absl::OkStatus();
      if (ready == 0) return Failed(absl::StrCat("no answer within ", DurationText(timeout_)));
      if (errno != EINTR) return Failed(std::strerror(errno));
    }
  }

  absl::Status Connect() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const std::string port = absl::StrCat(port_);
    if (const int error = getaddrinfo(host_.c_str(), port.c_str(), &hints, &found); error != 0) {
      return Failed(gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
    absl::Status failed = Failed("it has no address");
    for (; found != nullptr; found = found->ai_next) {
      failed = ConnectTo(*found);
      if (failed.ok()) break;
    }
    return failed;
  }

  absl::Status ConnectTo(const addrinfo& address) {
    socket_ = UniqueFd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) return Failed(std::strerror(errno));
    if (connect(socket_.get(), address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
    if (errno != EINPROGRESS) return Failed(std::strerror(errno));
    TY_RETURN_IF_ERROR(Wait(POLLOUT));
    int error = 0;
    socklen_t size = sizeof(error);
    TY_CHECK(getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0);
    return error == 0 ? absl::OkStatus() : Failed(std::strerror(error));
  }

  absl::Status Handshake(SSL& ssl) {
    while (true) {
      ERR_clear_error();
      const int done = SSL_connect(&ssl);
      if (done == 1) return absl::OkStatus();
      switch (SSL_get_error(&ssl, done)) {
        case SSL_ERROR_WANT_READ:
          TY_RETURN_IF_ERROR(Wait(POLLIN));
          break;
        case SSL_ERROR_WANT_WRITE:
          TY_RETURN_IF_ERROR(Wait(POLLOUT));
          break;
        default:
          return Failed(OpenSslError("it does not speak TLS 1.3").message());
      }
    }
  }

  const std::string& host_;
  const uint16_t port_;
  const absl::Duration timeout_;
  const absl::Duration deadline_;
  UniqueFd socket_;
};

}  // namespace

absl::StatusOr<std::vector<Certificate>> ProbeServer(const std::string& host, uint16_t port,
                                                     absl::Duration timeout) {
  return Probe(host, port, timeout).Run();
}

const Certificate& PinOf(const std::vector<Certificate>& chain) {
  TY_CHECK(!chain.empty());
  return chain.back();
}

absl::Status CheckTimes(absl::string_view server, const std::vector<Certificate>& chain,
                        absl::Time now) {
  const auto text = [](absl::Time time) {
    return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
  };
  for (const Certificate& shown : chain) {
    if (now > shown.not_after) {
      return error::CertificateRefused(
          server, absl::StrCat("it has expired at ", text(shown.not_after),
                               ", and the clock of this host shows ", text(now),
                               "; if the clock is right, the server's administrator has to renew "
                               "the certificate"));
    }
    if (now < shown.not_before) {
      return error::CertificateRefused(
          server, absl::StrCat("it is valid from ", text(shown.not_before),
                               " on only, and the clock of this host shows ", text(now),
                               "; set the clock that is wrong, here or on the server's host"));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::tls
