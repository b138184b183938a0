// The client's side of a connection on a Unix socket of this host.
#pragma once

#include "common/base/files.h"
#include "server/relay/client_side.h"

namespace trainyard::relay {

// The kernel has said who the client is, so there is no handshake, but only the first bytes that
// tell the protocol.
class PlainSide : public ClientSide {
 public:
  PlainSide(UniqueFd socket, access::Peer peer);

  Outcome Open() override;
  Moved Read(absl::Span<char> into) override;
  Moved Write(absl::string_view bytes) override;
  void EndWriting() override;
  Protocol protocol() const override { return protocol_; }
  // Those who could stop the server anyway, and all workers of the host, have no limits.
  std::optional<UniqueFd> TakeSocket() override;
  int socket() const override { return socket_.get(); }
  const access::Peer& peer() const override { return peer_; }

 private:
  UniqueFd socket_;
  const access::Peer peer_;
  Protocol protocol_ = Protocol::kHttp2;
};

}  // namespace trainyard::relay
