// The JSON header of a safetensors file: what each tensor is and where its bytes lie.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::checkpoint {

// The limit that the specification of the format sets.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// The header stands behind its length, a little-endian u64.
inline constexpr uint64_t kLengthBytes = 8;

struct TensorInfo {
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;     // first byte in the data region
  uint64_t end = 0;       // past the last
  uint64_t position = 0;  // in the file, of the quote behind the name; for messages
};

struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

// Bytes of an element; 0 where the format has no such dtype.
uint64_t DtypeBytes(absl::string_view dtype);

// DATA_LOSS `byte <position in the file>: <what>`.
absl::Status BadByte(uint64_t position, absl::string_view what);

// Parses `json` strictly: one object, no duplicate, missing or unknown keys, integers that fit,
// shape x dtype equal to the offsets' distance. Whether the offsets fit together is for the caller.
// DATA_LOSS otherwise.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json);

}  // namespace trainyard::checkpoint
