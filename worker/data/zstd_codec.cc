// Decodes step by step and stops at the limit, since a few bytes may stand for gigabytes.
#include "worker/data/zstd_codec.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::data {
namespace {

constexpr size_t kBlockBytes = 256 << 10;
// A stream is packed with a window of 2 MiB if its size is unknown and no level was chosen. The
// window is memory, so an archive must be worth a larger one.
constexpr int kWindowLogMin = 21;
constexpr int kWindowLogMax = 27;

absl::Status BadZstd(size_t position, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("byte ", position, " of the compressed file: ", what));
}

// Returns true if a frame of today's format begins here, or if there are too few bytes to tell. The
// library also reads the formats of before version 0.8, for whose windows it has no limit.
bool MayBeFrame(absl::string_view bytes) {
  if (bytes.size() < sizeof(uint32_t)) return true;
  uint32_t magic = 0;
  for (size_t i = sizeof(magic); i > 0; --i) {
    magic = magic << 8 | static_cast<unsigned char>(bytes[i - 1]);
  }
  return magic == ZSTD_MAGICNUMBER ||
         (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

}  // namespace

absl::StatusOr<std::string> DecodeZstd(absl::string_view bytes, int64_t max_bytes) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   ZSTD_freeDCtx);
  TY_CHECK(context != nullptr);
  const int window_log =
      std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(max_bytes))), kWindowLogMin,
                 kWindowLogMax);
  TY_CHECK(ZSTD_isError(ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, window_log)) ==
           0);
  ZSTD_inBuffer input = {bytes.data(), bytes.size(), 0};
  // A content that grew would need up to three times its memory. The size of the first frame is
  // that of the content in all archives that were packed at once.
  const unsigned long long stated = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  std::string content;
  if (stated != ZSTD_CONTENTSIZE_ERROR && stated != ZSTD_CONTENTSIZE_UNKNOWN) {
    content.reserve(std::min<uint64_t>(stated, static_cast<uint64_t>(max_bytes)) + kBlockBytes);
  }
  size_t hint = 1;  // 0 at the end of a frame
  while (input.pos < input.size || hint != 0) {
    const bool is_begin = input.pos == 0 || hint == 0;
    if (is_begin && !MayBeFrame(bytes.substr(input.pos))) {
      return BadZstd(input.pos, "no frame of Zstandard begins here");
    }
    const size_t old_size = content.size();
    // One byte past the limit shows that there is more.
    content.resize(old_size + std::min(kBlockBytes, static_cast<size_t>(max_bytes) + 1 - old_size));
    ZSTD_outBuffer output = {content.data(), content.size(), old_size};
    hint = ZSTD_decompressStream(context.get(), &output, &input);
    if (ZSTD_isError(hint) != 0) return BadZstd(input.pos, ZSTD_getErrorName(hint));
    const bool is_full = output.pos == content.size();
    content.resize(output.pos);
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      return BadZstd(input.pos, absl::StrCat("the content is larger than the limit of ", max_bytes,
                                             " bytes for a file of ", bytes.size()));
    }
    if (input.pos == input.size && hint != 0 && !is_full) {
      return BadZstd(input.pos, "the file ends inside the compressed data");
    }
  }
  return content;
}

}  // namespace trainyard::data
