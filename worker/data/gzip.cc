// Decodes step by step and stops at the limit, since a few bytes of gzip may stand for gigabytes.
#include "worker/data/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::data {
namespace {

constexpr size_t kBlockBytes = 256 << 10;
// This is zlib's code for the largest window, with 16 added for "gzip only".
constexpr int kWindowBits = MAX_WBITS + 16;

absl::Status BadGzip(size_t position, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("byte ", position, " of the compressed file: ", what));
}

// Returns the size of the content as the last four bytes state it, low byte first. A file that
// states another size than it has is refused in the end.
int64_t StatedSize(absl::string_view bytes) {
  int64_t size = 0;
  for (size_t i = 0; i < 4 && i < bytes.size(); ++i) {
    size = size << 8 | static_cast<uint8_t>(bytes[bytes.size() - 1 - i]);
  }
  return size;
}

}  // namespace

bool IsGzip(absl::string_view bytes) {
  return bytes.substr(0, 2) == "\x1f\x8b";
}

absl::StatusOr<std::string> DecodeGzip(absl::string_view bytes, int64_t max_bytes) {
  // zlib counts in 32 bits. None of our files comes near that.
  if (bytes.size() > UINT32_MAX) return BadGzip(0, "over 4 GiB are not accepted");
  z_stream stream{};
  TY_CHECK(inflateInit2(&stream, kWindowBits) == Z_OK);
  const auto end = absl::MakeCleanup([&stream] { inflateEnd(&stream); });
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  // A content that grew would need up to three times its memory.
  std::string content;
  content.reserve(static_cast<size_t>(std::min(StatedSize(bytes), max_bytes)) + kBlockBytes);
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    const size_t old_size = content.size();
    // One byte past the limit shows that there is more.
    const size_t room = std::min(kBlockBytes, static_cast<size_t>(max_bytes) + 1 - old_size);
    content.resize(old_size + room);
    stream.next_out = reinterpret_cast<Bytef*>(content.data() + old_size);
    stream.avail_out = static_cast<uInt>(room);
    result = inflate(&stream, Z_NO_FLUSH);
    content.resize(old_size + room - stream.avail_out);
    const size_t position = bytes.size() - stream.avail_in;
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      return BadGzip(position, absl::StrCat("the content is larger than the limit of ", max_bytes,
                                            " bytes for a file of ", bytes.size()));
    }
    if (result == Z_BUF_ERROR || (result == Z_OK && stream.avail_in == 0 && stream.avail_out > 0)) {
      return BadGzip(position, "the file ends inside the compressed data");
    }
    if (result != Z_OK && result != Z_STREAM_END) {
      return BadGzip(position, stream.msg != nullptr ? stream.msg : "the data is not gzip");
    }
  }
  if (stream.avail_in != 0) {
    return BadGzip(bytes.size() - stream.avail_in,
                   absl::StrCat(stream.avail_in, " bytes follow the compressed data"));
  }
  return content;
}

}  // namespace trainyard::data
