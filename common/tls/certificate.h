// Says what a certificate holds. Certificates travel as PEM text through this program, so that only
// the adapters know OpenSSL.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::tls {

// Every certificate that a server's own authority makes for a server carries this name besides
// those of its host. Clients that have pinned that authority ask for this name, so a server may be
// reached under any name and any address.
inline constexpr absl::string_view kServerName = "server.trainyard.internal";
// The name of a worker stands in its certificate as a URI after these words.
inline constexpr absl::string_view kWorkerUri = "spiffe://trainyard/worker/";

struct Certificate {
  std::string pem;
  // The SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` prints it: "AB:CD:...".
  std::string fingerprint;
  // The SHA-256 of its public key, written in the same way. Further certificates of the same key
  // have it too.
  std::string key_fingerprint;
  std::string subject;
  absl::Time not_before;
  absl::Time not_after;
  // The names and addresses of hosts for which the certificate speaks.
  std::vector<std::string> hosts;
  // The worker for which the certificate speaks, or "".
  std::string worker;
  bool is_authority = false;
};

}  // namespace trainyard::tls
