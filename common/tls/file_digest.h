// Computes the SHA-256 of files.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::tls {

// Returns the digest of a file as Sha256Hasher::Text does. It reads the file once, in blocks, and
// opens only what OpenRegularFile opens.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

}  // namespace trainyard::tls
