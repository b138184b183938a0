// The port to images that lie as bytes where they are computed on.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainyard::engine {

// 8-bit images, and what becomes of a byte: (byte / 255 - mean) / stddev, by channel.
struct ImageStore {
  absl::Span<const uint8_t> pixels;  // [count, C, H, W]; empty if batches bring their own
  absl::Span<const float> mean;      // [C]
  absl::Span<const float> stddev;
};

class ImageMemory {
 public:
  // Keeps a copy of the images on the device for batches with `stored`, in the place of those kept
  // before. Executable::memory_plan() counts them. RESOURCE_EXHAUSTED for more than `bytes_max`
  // bytes, or for more than there is. INVALID_ARGUMENT for a model whose input is no image of at
  // most kStoredChannelsMax channels, and for pixels that are no number of its images. After an
  // error nothing is kept.
  virtual absl::Status StoreImages(const ImageStore& images, int64_t bytes_max) = 0;

 protected:
  ~ImageMemory() = default;
};

}  // namespace trainyard::engine
