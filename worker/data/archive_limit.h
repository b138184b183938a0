// Limits what a packed archive may become in memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainyard::data {

inline constexpr int64_t kMaxArchiveBytes = int64_t{1} << 30;

// Returns the largest content of a packed archive of so many bytes. Archives of images shrink
// little: that of CIFAR-10's binary files by a tenth, and that of its JPEGs to a fifth, since most
// of it is headers and padding. What grows more than this is not read, since the content, the files
// in it and their pixels are in memory at a time. Archives of a few files may be nearly all
// headers.
inline int64_t ArchiveLimit(int64_t packed_bytes) {
  constexpr int64_t kMaxExpansion = 6;
  constexpr int64_t kAlwaysAccepted = int64_t{256} << 10;
  return std::min(kMaxArchiveBytes, std::max(kMaxExpansion * packed_bytes, kAlwaysAccepted));
}

}  // namespace trainyard::data
