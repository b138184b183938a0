// Writes the messages of failed sign-ins, which never repeat a token.
#include "common/base/sign_in_errors.h"

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::error {

absl::Status TokenUnknown() {
  return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                   "the token is not one of this server; check that it was copied whole, or ask "
                   "for a new one");
}

absl::Status TokenExpired(absl::string_view id, absl::Time end) {
  return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_EXPIRED",
                   absl::StrCat("token ", id, " has expired at ",
                                absl::FormatTime(absl::RFC3339_sec, end, absl::UTCTimeZone()),
                                "; sign in with a new one"));
}

absl::Status TokenRevoked(absl::string_view id, absl::Time when) {
  return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_REVOKED",
                   absl::StrCat("token ", id, " was revoked or used up at ",
                                absl::FormatTime(absl::RFC3339_sec, when, absl::UTCTimeZone()),
                                "; ask for a new one"));
}

absl::Status CertificateRevoked(absl::string_view worker, absl::Time when) {
  return MakeError(absl::StatusCode::kUnauthenticated, "CERTIFICATE_REVOKED",
                   absl::StrCat("the certificate of worker '", worker, "' was revoked at ",
                                absl::FormatTime(absl::RFC3339_sec, when, absl::UTCTimeZone()),
                                "; to take the worker back, run `trainyard workers invite ", worker,
                                "` on the server's host, and start it with the new invitation"));
}

absl::Status TokenNotFound(absl::string_view id) {
  return MakeError(absl::StatusCode::kNotFound, "NOT_FOUND",
                   absl::StrCat("there is no token '", id, "'; `trainyard tokens ls` shows them"));
}

absl::Status CertificateChanged(absl::string_view server, absl::string_view pinned,
                                absl::string_view shown) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "CERTIFICATE_CHANGED",
      absl::StrCat("the server at ", server,
                   " shows another certificate than the one that was "
                   "accepted for it; nothing was sent to it. Accepted: ",
                   pinned, ", shown: ", shown,
                   ". Somebody may stand between you and the server. If its administrator "
                   "confirms the new fingerprint, sign in again with `trainyard login`"));
}

absl::Status CertificateRefused(absl::string_view server, absl::string_view cause) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "CERTIFICATE_REFUSED",
      absl::StrCat("the certificate of the server at ", server, " does not hold: ", cause));
}

}  // namespace trainyard::error
