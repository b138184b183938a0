// Reads idx files. The header is checked against the length of the file before anything is taken
// from it.
#include "worker/data/idx.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/data/data_file.h"
#include "worker/data/gzip.h"

namespace trainyard::data {
namespace {

constexpr int64_t kMaxContentBytes = int64_t{1} << 30;
// Images and labels shrink 2 to 8 times. A file that grows more is an attack, or should not be
// packed.
constexpr int64_t kMaxExpansion = 16;
constexpr uint8_t kUnsignedByte = 0x08;

uint8_t ByteAt(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

absl::StatusOr<std::string> ReadContent(const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::string bytes, ReadDataFile(path, kMaxContentBytes));
  if (!IsGzip(bytes)) return bytes;
  const int64_t limit =
      std::min(kMaxContentBytes, kMaxExpansion * static_cast<int64_t>(bytes.size()));
  absl::StatusOr<std::string> content = DecodeGzip(bytes, limit);
  if (!content.ok()) return error::CorruptFile(path, content.status().message());
  return content;
}

// Fills in the dimensions. Returns what is wrong with the header, or an empty text if nothing is.
std::string ParseHeader(absl::string_view bytes, size_t count, std::vector<int64_t>& dimensions) {
  const size_t header = 4 + 4 * count;
  if (bytes.size() < header) {
    return absl::StrCat("byte ", bytes.size(), ": the file ends inside its header of ", header,
                        " bytes");
  }
  for (size_t at = 0; at < 2; ++at) {
    if (ByteAt(bytes, at) != 0) {
      return absl::StrFormat("byte %d: magic 0x%02x; expected 0x00", at, ByteAt(bytes, at));
    }
  }
  if (ByteAt(bytes, 2) != kUnsignedByte) {
    return absl::StrFormat("byte 2: type 0x%02x; expected 0x%02x, unsigned bytes", ByteAt(bytes, 2),
                           kUnsignedByte);
  }
  if (ByteAt(bytes, 3) != count) {
    return absl::StrCat("byte 3: ", ByteAt(bytes, 3), " dimensions; expected ", count);
  }
  int64_t elements = 1;
  for (size_t at = 4; at < header; at += 4) {
    const int64_t dimension = int64_t{ByteAt(bytes, at)} << 24 | ByteAt(bytes, at + 1) << 16 |
                              ByteAt(bytes, at + 2) << 8 | ByteAt(bytes, at + 3);
    if (dimension == 0 || dimension > kMaxContentBytes / elements) {
      return absl::StrCat("byte ", at, ": dimension ", dimension, "; expected 1 to ",
                          kMaxContentBytes / elements);
    }
    elements *= dimension;
    dimensions.push_back(dimension);
  }
  const auto held = static_cast<int64_t>(bytes.size() - header);
  if (held == elements) return "";
  return absl::StrCat("byte ", std::min(bytes.size(), header + static_cast<size_t>(elements)), ": ",
                      held < elements ? "the file ends too early" : "bytes follow the last element",
                      "; dimensions ", absl::StrJoin(dimensions, " x "), " need ", elements,
                      " bytes of data, the file holds ", held);
}

}  // namespace

absl::StatusOr<IdxFile> ReadIdx(const std::string& path, int dimensions) {
  IdxFile file;
  TY_ASSIGN_OR_RETURN(file.bytes, ReadContent(path));
  const auto count = static_cast<size_t>(dimensions);
  const std::string violation = ParseHeader(file.bytes, count, file.dimensions);
  if (!violation.empty()) return error::CorruptFile(path, violation);
  file.data_offset = 4 + 4 * count;
  return file;
}

}  // namespace trainyard::data
