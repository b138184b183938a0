// Reads the idx format of MNIST: two zero bytes, a type byte, the number of dimensions, the
// dimensions as big-endian u32, then the elements. Files may be plain or gzip.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::data {

struct IdxFile {
  std::vector<int64_t> dimensions;
  std::string bytes;       // the decoded content, with the header
  size_t data_offset = 0;  // the offset of the elements in `bytes`, which extend to its end
};

// Reads a file of unsigned bytes (type 0x08) with this many dimensions. There must be exactly as
// many elements as the dimensions say. No allocation exceeds 16 times the file's size. Returns
// NOT_FOUND, or DATA_LOSS (CORRUPT_FILE) with the file, the byte's position in the decoded content,
// the value and what was expected.
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, int dimensions);

}  // namespace trainyard::data
