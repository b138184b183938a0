// Computes CRC-32C, with which records of TFRecord are checked.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the CRC-32C of the bytes (RFC 3720).
uint32_t Crc32c(absl::string_view bytes);
// Returns it in the form of records, which is safe to store beside what it is of.
uint32_t MaskedCrc32c(absl::string_view bytes);

}  // namespace trainyard
