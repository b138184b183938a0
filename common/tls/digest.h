// Makes secrets and the digests by which they are recognised. Unlike common/base/hash.h and the
// Rng, these resist an attacker.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::tls {

// Returns the 32 bytes of the SHA-256 of `text`.
std::string Sha256(absl::string_view text);

// Returns this many bytes that nobody can guess.
std::string SecretBytes(size_t count);

}  // namespace trainyard::tls
