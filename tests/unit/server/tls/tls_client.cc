// Calls OpenSSL with sockets that block.
#include "tests/unit/server/tls/tls_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <utility>

namespace trainyard::tls {

LoopbackListener::LoopbackListener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  EXPECT_EQ(listen(socket_.get(), SOMAXCONN), 0);
  socklen_t size = sizeof(name);
  EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  port_ = ntohs(name.sin_port);
}

LoopbackListener::Ends LoopbackListener::Connect() {
  Ends ends;
  ends.client = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
  // No test waits for ever if something is wrong.
  const timeval patience = {30, 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    EXPECT_EQ(setsockopt(ends.client.get(), SOL_SOCKET, option, &patience, sizeof(patience)), 0);
  }
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port_);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(ends.client.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ends.server = Accept();
  return ends;
}

UniqueFd LoopbackListener::Accept() {
  UniqueFd accepted(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  EXPECT_TRUE(accepted.valid());
  return accepted;
}

TlsClient::TlsClient(UniqueFd socket, const Options& options)
    : socket_(std::move(socket)), context_(SSL_CTX_new(TLS_client_method())) {
  SSL_CTX_set_min_proto_version(context_.get(), options.version_min);
  SSL_CTX_set_max_proto_version(context_.get(), options.version_max);
  SSL_CTX_set_options(context_.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
  if (!options.identity.key.empty()) {
    const auto certificate = ReadFirstCertificate(options.identity.certificate);
    const auto key = ReadKey(options.identity.key);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate->get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key->get()), 1);
  }
  if (!options.authority.empty()) {
    const auto authority = ReadFirstCertificate(options.authority);
    EXPECT_EQ(X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), authority->get()), 1);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  }
  ssl_.reset(SSL_new(context_.get()));
  if (options.now > absl::InfinitePast()) {
    X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl_.get()), absl::ToTimeT(options.now));
  }
  SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(options.protocol.data()),
                      static_cast<unsigned int>(options.protocol.size()));
  SSL_set_fd(ssl_.get(), socket_.get());
}

bool TlsClient::Handshake() {
  return SSL_connect(ssl_.get()) == 1;
}

bool TlsClient::Write(const std::string& bytes) {
  return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
         static_cast<int>(bytes.size());
}

std::string TlsClient::Read() {
  std::string bytes(65536, '\0');
  const int got = SSL_read(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

std::string TlsClient::Read(size_t bytes) {
  std::string all;
  while (all.size() < bytes) {
    const std::string some = Read();
    if (some.empty()) break;
    all += some;
  }
  return all;
}

void TlsClient::EndWriting() {
  SSL_shutdown(ssl_.get());
  EXPECT_EQ(shutdown(socket_.get(), SHUT_WR), 0);
}

Certificate TlsClient::Shown() const {
  const X509Ptr shown(SSL_get1_peer_certificate(ssl_.get()));
  return shown == nullptr ? Certificate{} : FactsOf(*shown);
}

}  // namespace trainyard::tls
