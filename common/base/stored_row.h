// How a row of a batch is made of an 8-bit image. Those who draw the changes and the kernels that
// make them share it, so that it goes from the host to the device as it is.
#pragma once

#include <cstdint>

namespace trainyard {

// Images have so many channels at most: a kernel holds as many constants of them.
inline constexpr int kStoredChannelsMax = 4;

// The image shifted by (dx, dy) with black beyond its border, mirrored, then a square hidden.
// Pixel (x, y) of the row is pixel (x' + dx, y + dy) of the image, with x' = width - 1 - x where
// `flip` is not 0.
struct StoredRow {
  int64_t image = 0;  // index of the image; of a batch that brings its own bytes: not read
  int16_t dx = 0;
  int16_t dy = 0;
  // Square [cut_x, cut_x + cut_width) x [cut_y, cut_y + cut_height) of the row that becomes the
  // mean, 0 once normalised; 0 wide: none.
  int16_t cut_x = 0;
  int16_t cut_y = 0;
  int16_t cut_width = 0;
  int16_t cut_height = 0;
  int32_t flip = 0;

  friend bool operator==(const StoredRow&, const StoredRow&) = default;
};
static_assert(sizeof(StoredRow) == 24);

}  // namespace trainyard
