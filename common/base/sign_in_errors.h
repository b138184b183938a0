// Names the errors of signing in to a server of another host, in addition to errors.h.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::error {

// TOKEN_UNKNOWN: the token is none that this server has made; check that it was copied whole and is
// for this server, or ask for a new one.
absl::Status TokenUnknown();
// TOKEN_EXPIRED, TOKEN_REVOKED: ask for a new token (`trainyard tokens create`) and sign in with it
// (`trainyard login`).
absl::Status TokenExpired(absl::string_view id, absl::Time end);
absl::Status TokenRevoked(absl::string_view id, absl::Time when);
// CERTIFICATE_REVOKED: the worker was removed, and its certificate with it. If it is to work again,
// invite it by its name, and start it with the new invitation.
absl::Status CertificateRevoked(absl::string_view worker, absl::Time when);
// NOT_FOUND: `trainyard tokens ls` shows the tokens.
absl::Status TokenNotFound(absl::string_view id);
// CERTIFICATE_CHANGED: the server is another one than before, or somebody stands between. If its
// administrator says that the certificate is new, sign in again.
absl::Status CertificateChanged(absl::string_view server, absl::string_view pinned,
                                absl::string_view shown);
// CERTIFICATE_REFUSED: the server shows the certificate that is pinned, but it does not hold: it
// has expired, or it is for another host. `cause` says which.
absl::Status CertificateRefused(absl::string_view server, absl::string_view cause);

}  // namespace trainyard::error
