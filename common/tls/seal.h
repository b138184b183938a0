// Encrypts small values that lie on a disk, so that a copy of the file alone tells nothing.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::tls {

// The key of AES-256-GCM.
inline constexpr size_t kSealKeyBytes = 32;

// Returns `text`, encrypted and authenticated under a key of kSealKeyBytes: a random nonce, the
// cipher text, and the tag. `about` is authenticated with it, so that a sealed value that was moved
// to another place does not open there.
std::string Seal(absl::string_view key, absl::string_view text, absl::string_view about);

// Returns what was sealed. Returns DATA_LOSS if the key or `about` is another one, or if a byte has
// changed.
absl::StatusOr<std::string> Unseal(absl::string_view key, absl::string_view sealed,
                                   absl::string_view about);

}  // namespace trainyard::tls
