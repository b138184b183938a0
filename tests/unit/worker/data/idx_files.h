// Makes idx files for tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/check.h"

namespace trainyard::data {

inline std::string IdxBytes(const std::vector<uint32_t>& dimensions, absl::string_view data) {
  std::string bytes("\0\0\x08", 3);
  bytes += static_cast<char>(dimensions.size());
  for (const uint32_t dimension : dimensions) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(dimension >> shift & 0xff);
  }
  bytes.append(data.data(), data.size());
  return bytes;
}

inline std::string Gzip(absl::string_view content) {
  z_stream stream{};
  TY_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  TY_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace trainyard::data
