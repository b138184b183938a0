// Makes JPEGs for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs the headers above it.
#include <jpeglib.h>

#include <functional>
#include <string>
#include <vector>

namespace trainyard::data {

struct JpegOptions {
  int quality = 95;
  bool is_progressive = false;
  int components = 3;   // 1 grey, 3 RGB, 4 CMYK
  int subsampling = 2;  // of the colours; 1 for none
};

// An image of `width` x `height` whose level of component c at (x, y) is `level(x, y, c)`.
inline std::string JpegBytes(int width, int height,
                             const std::function<int(int x, int y, int c)>& level,
                             const JpegOptions& options = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = options.components;
  info.in_color_space = options.components == 1   ? JCS_GRAYSCALE
                        : options.components == 3 ? JCS_RGB
                                                  : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor =
      options.components == 3 ? options.subsampling : 1;
  if (options.is_progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row(static_cast<size_t>(width * options.components));
  for (int y = 0; y < height; ++y) {
    size_t i = 0;
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < options.components; ++c) {
        row[i++] = static_cast<uint8_t>(level(x, y, c));
      }
    }
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  std::string result(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return result;
}

// Slopes of another direction in each colour: smooth, so that little is lost.
inline std::string SlopeJpeg(int width, int height, const JpegOptions& options = {}) {
  return JpegBytes(
      width, height,
      [=](int x, int y, int c) {
        return c == 0 ? 255 * x / width : c == 1 ? 255 * y / height : 128;
      },
      options);
}

// Makes an image of a single level.
inline std::string FlatJpeg(int width, int height, int level) {
  return JpegBytes(width, height, [=](int, int, int) { return level; });
}

}  // namespace trainyard::data
