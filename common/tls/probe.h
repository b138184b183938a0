// Looks at the certificates that a server shows, before anybody trusts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tls/certificate.h"

namespace trainyard::tls {

// Connects to a port of TLS, and returns the chain that the server shows, its own certificate
// first. It sends nothing and trusts nobody. Returns UNAVAILABLE with the cause if there is no such
// server, or it does not speak TLS 1.3 and HTTP/2.
absl::StatusOr<std::vector<Certificate>> ProbeServer(const std::string& host, uint16_t port,
                                                     absl::Duration timeout);

// Returns the certificate of the chain that clients should pin: its last one, which has signed the
// others and stays when the server's own certificate is renewed.
const Certificate& PinOf(const std::vector<Certificate>& chain);

// Returns CERTIFICATE_REFUSED if a certificate that `server` shows does not hold at `now`, by the
// clock of this host. Only whoever looks at both can tell which clock is wrong.
absl::Status CheckTimes(absl::string_view server, const std::vector<Certificate>& chain,
                        absl::Time now);

}  // namespace trainyard::tls
