// The client's side of a connection of TLS.
#pragma once

#include "common/base/files.h"
#include "common/tls/openssl.h"
#include "server/relay/client_side.h"
#include "server/tls/context.h"

namespace trainyard::tls {

// A client is known by its address, and a worker by its certificate besides.
class TlsSide : public relay::ClientSide {
 public:
  // `now` is the time by which the client's certificate is judged. Returns null if OpenSSL has no
  // memory for the connection.
  static std::unique_ptr<TlsSide> Create(UniqueFd socket, SSL_CTX& context, absl::Time now);

  Outcome Open() override;
  Moved Read(absl::Span<char> into) override;
  Moved Write(absl::string_view bytes) override;
  void EndWriting() override;
  relay::Protocol protocol() const override { return protocol_; }
  int socket() const override { return socket_.get(); }
  const access::Peer& peer() const override { return peer_; }
  absl::Time end() const override { return certificate_end_; }

 private:
  TlsSide(UniqueFd socket, SslPtr ssl);

  // Says what a call of OpenSSL that did not succeed means.
  Outcome After(int result);

  // The order matters: the socket is closed after OpenSSL has let it go.
  const UniqueFd socket_;
  const SslPtr ssl_;
  access::Peer peer_;
  relay::Protocol protocol_ = relay::Protocol::kHttp2;
  absl::Time certificate_end_ = absl::InfiniteFuture();
};

}  // namespace trainyard::tls
