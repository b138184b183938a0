// Repairs the checksums of a tar archive.
#include "tests/fuzz/tar_headers.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace trainyard::fuzz {

std::string WithChecksums(absl::string_view archive) {
  constexpr size_t kBlock = 512;
  std::string repaired(archive);
  for (size_t at = 0; at + kBlock <= repaired.size();) {
    const absl::string_view header = absl::string_view(repaired).substr(at, kBlock);
    if (header.find_first_not_of('\0') == absl::string_view::npos) break;
    uint64_t size = 0;
    for (const char c : header.substr(124, 12)) {
      if (c < '0' || c > '7') break;
      size = size * 8 + static_cast<uint64_t>(c - '0');
    }
    repaired.replace(at + 148, 8, 8, ' ');
    uint32_t sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += static_cast<uint8_t>(repaired[at + i]);
    repaired.replace(at + 148, 6, absl::StrFormat("%06o", sum));
    at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
  }
  return repaired;
}

}  // namespace trainyard::fuzz
