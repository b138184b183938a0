// Decodes JPEG images with libjpeg-turbo: only the part that is needed, at the smallest scale that
// still has all of its detail.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/augment.h"

namespace trainyard::data {

// Larger images are refused, since a few bytes may claim 65,535 x 65,535 pixels.
inline constexpr int64_t kMaxJpegPixels = int64_t{1} << 26;

// Says how much of the data behind the last pixel that was asked for is checked.
enum class JpegCheck {
  // None of it: only what is decoded can be found damaged.
  kAsRead,
  // All of it, for who reads whole images. Data that is left over then counts as damage: where a
  // decoder lost its place in the data, it reads on, and usually has data left when it has all
  // pixels. Padding is not damage: some encoders fill up the data with bytes of one value.
  kToTheEnd,
};

// Reads one image. It borrows the bytes. Grey and CMYK images become RGB.
class JpegReader {
 public:
  // Reads the header. Returns DATA_LOSS with position, value and what was expected, also for a file
  // that ends before its end mark.
  static absl::StatusOr<std::unique_ptr<JpegReader>> Open(absl::string_view bytes,
                                                          JpegCheck check = JpegCheck::kAsRead);
  ~JpegReader();

  int64_t width() const;
  int64_t height() const;

  // Writes the framing as `out` [3, out_height, out_width] in [0, 1]; see Resample. The inverse
  // cosine transform yields an eighth, a quarter, half or all of the pixels on each side: the
  // smallest of these numbers that is no less than the sample's. It may be called only once.
  // Returns DATA_LOSS as Open does if the damage lies in the part that is read.
  absl::Status Read(const Framing& framing, int64_t out_width, int64_t out_height,
                    absl::Span<float> out);

 private:
  class Impl;
  explicit JpegReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::data
