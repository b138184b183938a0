// Writes tensors in the order of their names, so that equal states make equal files.
#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/checkpoint/safetensors_header.h"

namespace trainyard::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are copied as they lie in memory");

// This is larger than any model that is trained here. The memory taken is the file's size in any
// case.
constexpr int64_t kMaxFileBytes = int64_t{64} << 30;

uint64_t TensorBytes(const Tensor& tensor) {
  uint64_t bytes = DtypeBytes(tensor.dtype);
  for (const int64_t dimension : tensor.shape) bytes *= static_cast<uint64_t>(dimension);
  return bytes;
}

std::string EncodeLength(uint64_t length) {
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes;
}

absl::StatusOr<uint64_t> DecodeLength(absl::string_view bytes) {
  if (bytes.size() < kLengthBytes) {
    return BadByte(bytes.size(), absl::StrCat("the file ends after ", bytes.size(),
                                              " bytes; expected the header's length in 8 bytes"));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    return BadByte(0, absl::StrCat("the header's length is ", length, "; at most ", kMaxHeaderBytes,
                                   " are accepted"));
  }
  if (length > bytes.size() - kLengthBytes) {
    return BadByte(0, absl::StrCat("the header's length is ", length, "; the file has only ",
                                   bytes.size() - kLengthBytes, " bytes behind it"));
  }
  return length;
}

// The tensors must tile the data region: a byte that belongs to none or to two means a damaged
// file.
absl::Status CheckTiling(const SafetensorsHeader& header, uint64_t data_bytes) {
  using Entry = std::pair<const std::string, TensorInfo>;
  std::vector<const Entry*> order;
  for (const Entry& entry : header.tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t expected = 0;
  for (const Entry* entry : order) {
    const auto& [name, info] = *entry;
    if (info.begin != expected) {
      return BadByte(info.position,
                     absl::StrCat("tensor ", JsonQuote(name), " begins at data offset ", info.begin,
                                  info.begin < expected ? ", inside its predecessor; expected "
                                                        : ", leaving a hole; expected ",
                                  expected));
    }
    if (info.end > data_bytes) {
      return BadByte(info.position,
                     absl::StrCat("tensor ", JsonQuote(name), " ends at data offset ", info.end,
                                  "; the file holds only ", data_bytes, " bytes of data"));
    }
    expected = info.end;
  }
  if (expected != data_bytes) {
    return absl::DataLossError(
        absl::StrCat("the tensors take ", expected, " bytes of data; the file holds ", data_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

Tensor FloatTensor(std::vector<int64_t> shape, const float* values) {
  Tensor tensor{"F32", std::move(shape), {}};
  tensor.data.assign(reinterpret_cast<const char*>(values), TensorBytes(tensor));
  return tensor;
}

absl::StatusOr<std::vector<float>> FloatValues(const Tensor& tensor) {
  if (tensor.dtype != "F32") {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor has dtype ", tensor.dtype, "; expected F32"));
  }
  TY_CHECK(tensor.data.size() == TensorBytes(tensor));
  std::vector<float> values(tensor.data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

std::string EncodeSafetensors(const TensorFile& file) {
  std::map<std::string, std::string> metadata = file.metadata;
  // The readers of PyTorch and of transformers require it.
  metadata.emplace("format", "pt");
  std::string header = absl::StrCat("{\"__metadata__\":{",
                                    absl::StrJoin(metadata, ",",
                                                  [](std::string* out, const auto& entry) {
                                                    absl::StrAppend(out, JsonQuote(entry.first),
                                                                    ":", JsonQuote(entry.second));
                                                  }),
                                    "}");
  uint64_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    TY_CHECK(name != "__metadata__" && DtypeBytes(tensor.dtype) != 0);
    TY_CHECK(tensor.data.size() == TensorBytes(tensor));
    const uint64_t end = offset + tensor.data.size();
    absl::StrAppend(&header, ",", JsonQuote(name), ":{\"dtype\":\"", tensor.dtype, "\",\"shape\":[",
                    absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", offset, ",", end,
                    "]}");
    offset = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  TY_CHECK(header.size() <= kMaxHeaderBytes);

  std::string bytes;
  bytes.reserve(kLengthBytes + header.size() + offset);
  bytes += EncodeLength(header.size());
  bytes += header;
  for (const auto& [name, tensor] : file.tensors) bytes += tensor.data;
  return bytes;
}

absl::StatusOr<TensorFile> DecodeSafetensors(absl::string_view bytes) {
  TY_ASSIGN_OR_RETURN(const uint64_t length, DecodeLength(bytes));
  TY_ASSIGN_OR_RETURN(SafetensorsHeader header,
                      ParseSafetensorsHeader(bytes.substr(kLengthBytes, length)));
  const absl::string_view data = bytes.substr(kLengthBytes + length);
  TY_RETURN_IF_ERROR(CheckTiling(header, data.size()));
  TensorFile file;
  file.metadata = std::move(header.metadata);
  for (auto& [name, info] : header.tensors) {
    file.tensors[name] = Tensor{std::move(info.dtype), std::move(info.shape),
                                std::string(data.substr(info.begin, info.end - info.begin))};
  }
  return file;
}

absl::StatusOr<TensorFile> ReadSafetensors(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
  absl::StatusOr<TensorFile> file = DecodeSafetensors(bytes);
  if (!file.ok()) return error::CorruptFile(path, file.status().message());
  return file;
}

}  // namespace trainyard::checkpoint
