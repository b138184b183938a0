// Implements the simplest data set: pixels and labels in two arrays.
#include "worker/data/memory_dataset.h"

#include <functional>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace trainyard::data {

MemoryDataset::MemoryDataset(Content content)
    : content_(std::move(content)),
      sample_pixels_(static_cast<size_t>(std::accumulate(content_.sample_shape.begin(),
                                                         content_.sample_shape.end(), int64_t{1},
                                                         std::multiplies<>()))) {
  TY_CHECK(content_.pixels.size() == content_.labels.size() * sample_pixels_);
}

absl::Status MemoryDataset::Read(int64_t index, absl::Span<float> pixels,
                                 absl::Span<int32_t> labels) const {
  TY_CHECK(index >= 0 && index < size() && pixels.size() == sample_pixels_ && labels.size() == 1);
  const uint8_t* from = content_.pixels.data() + static_cast<size_t>(index) * sample_pixels_;
  for (size_t i = 0; i < sample_pixels_; ++i) pixels[i] = static_cast<float>(from[i]) / 255.0F;
  labels[0] = content_.labels[static_cast<size_t>(index)];
  return absl::OkStatus();
}

}  // namespace trainyard::data
