// A client of TLS for tests, which blocks and may misbehave.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/tls/certificate.h"
#include "common/tls/issue.h"
#include "common/tls/openssl.h"

namespace trainyard::tls {

// A socket that listens on a free port of the loopback interface.
class LoopbackListener {
 public:
  LoopbackListener();
  uint16_t port() const { return port_; }
  // Connects, and returns both ends. Reads and writes of the client's end give up after a while.
  struct Ends {
    UniqueFd client;
    UniqueFd server;
  };
  Ends Connect();
  // Waits for a connection that somebody else makes.
  UniqueFd Accept();

 private:
  UniqueFd socket_;
  uint16_t port_ = 0;
};

class TlsClient {
 public:
  struct Options {
    int version_min = TLS1_3_VERSION;
    int version_max = 0;              // 0 is the newest
    std::string protocol = "\x02h2";  // as ALPN has it; empty for none
    KeyPair identity = {};            // shown if it is not empty
    std::string authority = {};  // the server must have a certificate of it, if it is not empty
    absl::Time now = absl::InfinitePast();  // the time by which certificates are judged, if later
  };

  TlsClient(UniqueFd socket, const Options& options);
  explicit TlsClient(UniqueFd socket) : TlsClient(std::move(socket), Options{}) {}

  // Makes the handshake, and waits until the server has accepted it or ended the connection, which
  // in TLS 1.3 a client learns only when it reads.
  bool Handshake();
  bool Write(const std::string& bytes);
  // Returns what comes next, or "" at the end.
  std::string Read();
  // Reads until so many bytes have come, or the connection ends.
  std::string Read(size_t bytes);
  // Says that nothing more will be sent.
  void EndWriting();
  // Returns the certificate that the server has shown.
  Certificate Shown() const;
  int socket() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  SslContextPtr context_;
  SslPtr ssl_;
};

}  // namespace trainyard::tls
