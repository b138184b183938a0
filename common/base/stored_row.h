// Describes how a row of a batch is made from an 8-bit image. The sampler that draws the changes
// and the kernels that apply them share this struct, so that it goes from the host to the device
// unchanged.
#pragma once

#include <cstdint>

namespace trainyard {

// The largest number of channels of an image. A kernel holds this many constants.
inline constexpr int kStoredChannelsMax = 4;

// The row is the image shifted by (dx, dy) with black beyond its border, mirrored, and then with a
// square hidden. Pixel (x, y) of the row is pixel (x' + dx, y + dy) of the image, with x' = width -
// 1 - x if `flip` is not 0.
struct StoredRow {
  int64_t image = 0;  // the index of the image; unused in a batch that brings its own bytes
  int16_t dx = 0;
  int16_t dy = 0;
  // The square [cut_x, cut_x + cut_width) x [cut_y, cut_y + cut_height) of the row is replaced by
  // the mean, which is 0 after normalisation. A width of 0 means no square.
  int16_t cut_x = 0;
  int16_t cut_y = 0;
  int16_t cut_width = 0;
  int16_t cut_height = 0;
  int32_t flip = 0;

  friend bool operator==(const StoredRow&, const StoredRow&) = default;
};
static_assert(sizeof(StoredRow) == 24);

}  // namespace trainyard
