// Defines the port to images that lie as bytes in the memory of the device that computes on them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainyard::engine {

// 8-bit images, and how a byte becomes a number: (byte / 255 - mean) / stddev, by channel.
struct ImageStore {
  absl::Span<const uint8_t> pixels;  // [count, C, H, W]; empty if batches bring their own
  absl::Span<const float> mean;      // [C]
  absl::Span<const float> stddev;
};

class ImageMemory {
 public:
  // Keeps a copy of the images on the device for batches with `stored`, and replaces those kept
  // before. Executable::memory_plan() counts them. Returns RESOURCE_EXHAUSTED for more than
  // `bytes_max` bytes, or for more than there is, and INVALID_ARGUMENT for a model whose input is
  // not an image of at most kStoredChannelsMax channels, or for pixels that are not a whole number
  // of its images. After an error nothing is kept.
  virtual absl::Status StoreImages(const ImageStore& images, int64_t bytes_max) = 0;

 protected:
  ~ImageMemory() = default;
};

}  // namespace trainyard::engine
