// Reads and writes the safetensors format: 8 bytes little-endian header length, a JSON header, and
// raw little-endian tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::checkpoint {

// A tensor in memory. dtype is "F32", "F64", "I64" ... as in the format; data is raw little-endian
// bytes, row-major.
struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

Tensor FloatTensor(std::vector<int64_t> shape, const float* values);
// Returns INVALID_ARGUMENT if the dtype is not F32.
absl::StatusOr<std::vector<float>> FloatValues(const Tensor& tensor);

// Serialises with offsets in name order, the header padded with spaces to 8 bytes, and metadata
// {"format": "pt"} added.
std::string EncodeSafetensors(const TensorFile& file);
// Parses strictly: the header has at most 100 MB and lies inside the file, sizes equal shape x
// dtype, offsets are contiguous without hole or overlap, and there are no duplicate keys. Returns
// DATA_LOSS with position and value otherwise.
absl::StatusOr<TensorFile> DecodeSafetensors(absl::string_view bytes);
absl::StatusOr<TensorFile> ReadSafetensors(const std::string& path);

}  // namespace trainyard::checkpoint
