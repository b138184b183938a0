// The client's side of a connection on a Unix socket of this host.
#pragma once

#include "common/base/files.h"
#include "server/relay/client_side.h"

namespace trainyard::relay {

// The kernel has said who the client is, so there is no handshake.
class PlainSide : public ClientSide {
 public:
  PlainSide(UniqueFd socket, access::Peer peer);

  Outcome Open() override { return Outcome::kDone; }
  Moved Read(absl::Span<char> into) override;
  Moved Write(absl::string_view bytes) override;
  void EndWriting() override;
  int socket() const override { return socket_.get(); }
  const access::Peer& peer() const override { return peer_; }

 private:
  const UniqueFd socket_;
  const access::Peer peer_;
};

}  // namespace trainyard::relay
