// Builds what OpenSSL needs to serve connections: TLS 1.3 alone, HTTP/2 or HTTP/1.1, and a
// certificate of the client that is checked if there is one.
#pragma once

#include <memory>
#include <string>

#include <openssl/ssl.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::tls {

// The texts of the files that a server shows and trusts, all as PEM.
struct ServerMaterial {
  std::string key;
  // The server's certificate, and those that have signed it.
  std::string chain;
  // The authorities whose certificates clients may show.
  std::string client_authorities;

  friend bool operator==(const ServerMaterial&, const ServerMaterial&) = default;
};

// The names by which clients choose a protocol (ALPN).
inline constexpr absl::string_view kHttp2 = "h2";
inline constexpr absl::string_view kHttp1 = "http/1.1";

using SharedContext = std::shared_ptr<SSL_CTX>;

// Returns INVALID_ARGUMENT if a text is damaged, or the key does not belong to the certificate.
absl::StatusOr<SharedContext> MakeServerContext(const ServerMaterial& material);

}  // namespace trainyard::tls
