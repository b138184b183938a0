// Reads certificates and fingerprints.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tls/certificate.h"

namespace trainyard::tls {

// Reads all certificates of a PEM text, in their order. Returns INVALID_ARGUMENT if there is none,
// one is damaged, or the text is too large to be meant.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(absl::string_view pem);

// Returns INVALID_ARGUMENT if the private key does not belong to the first certificate.
absl::Status CheckKeyPair(absl::string_view certificate_pem, absl::string_view key_pem);

// Reads a fingerprint as people copy it, in any case, with or without colons and "SHA256:", and
// returns it as Certificate has it.
absl::StatusOr<std::string> ReadFingerprint(absl::string_view text);

}  // namespace trainyard::tls
