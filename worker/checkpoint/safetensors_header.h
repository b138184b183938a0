// Parses the JSON header of a safetensors file, which says what each tensor is and where its bytes
// lie.
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
// The header follows its length, a little-endian u64.
inline constexpr uint64_t kLengthBytes = 8;

struct TensorInfo {
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;     // the first byte in the data region
  uint64_t end = 0;       // the byte after the last
  uint64_t position = 0;  // the position in the file of the quote after the name; for messages
};

struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

// Returns the bytes of an element, or 0 if the format has no such dtype.
uint64_t DtypeBytes(absl::string_view dtype);

// Returns DATA_LOSS with `byte <position in the file>: <what>`.
absl::Status BadByte(uint64_t position, absl::string_view what);

// Parses `json` strictly: one object, no duplicate, missing or unknown keys, integers that fit, and
// shape x dtype equal to the distance of the offsets. The caller checks whether the offsets fit
// together. Returns DATA_LOSS otherwise.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json);

}  // namespace trainyard::checkpoint
