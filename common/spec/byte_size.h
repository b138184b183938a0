// Reads and writes amounts of memory as people write them: "80 GiB", "512 MiB", "24 GB". The unit
// is never left out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Parses a size. Units are B, KiB, MiB, GiB, TiB, and kB, MB, GB, TB, which are powers of ten.
// Returns INVALID_ARGUMENT with the value and the accepted units otherwise.
absl::StatusOr<v1::ByteSize> ParseByteSize(absl::string_view text);

// Returns the size in the largest unit that divides it: "80 GiB", "1500 B". ParseByteSize can read
// it back.
std::string ByteSizeText(const v1::ByteSize& size);

}  // namespace trainyard::spec
