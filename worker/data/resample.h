// Cuts a part out of an image and scales it to the size of a sample.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/augment.h"

namespace trainyard::data {

// A view of [height, width, channels], with rows `row_elements` apart. T is uint8_t (0 to 255) or
// float (0 to 1). It borrows the pixels.
template <typename T>
struct ImageView {
  const T* pixels = nullptr;
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 1;
  int64_t row_elements = 0;
};

// Writes the framing of `image` as `out` [channels, out_height, out_width] in [0, 1]. The filter is
// linear, and is widened where the image shrinks so that no pixel is skipped, as in Pillow's
// Image.resize(box=...). A framing of the sample's own size on whole pixels is copied. Parts
// outside the image are black.
template <typename T>
void Resample(const ImageView<T>& image, const Framing& framing, int64_t out_width,
              int64_t out_height, absl::Span<float> out);

extern template void Resample(const ImageView<uint8_t>&, const Framing&, int64_t, int64_t,
                              absl::Span<float>);
extern template void Resample(const ImageView<float>&, const Framing&, int64_t, int64_t,
                              absl::Span<float>);

}  // namespace trainyard::data
