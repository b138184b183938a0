// Defines a data set that lies in memory as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/dataset.h"

namespace trainyard::data {

// A data set in memory. It is thread-safe.
class MemoryDataset : public Dataset {
 public:
  struct Content {
    std::vector<int64_t> sample_shape;  // {channels, height, width}
    int64_t classes = 0;
    std::string digest;
    std::vector<uint8_t> pixels;  // [samples, C, H, W]
    std::vector<uint8_t> labels;  // [samples], each below `classes`
  };

  explicit MemoryDataset(Content content);

  int64_t size() const override { return static_cast<int64_t>(content_.labels.size()); }
  int64_t classes() const override { return content_.classes; }
  const std::vector<int64_t>& sample_shape() const override { return content_.sample_shape; }
  absl::Status Read(int64_t index, absl::Span<float> pixels,
                    absl::Span<int32_t> labels) const override;
  ByteSamples bytes() const override { return {content_.pixels, content_.labels}; }
  const std::string& digest() const override { return content_.digest; }

 private:
  const Content content_;
  const size_t sample_pixels_;
};

}  // namespace trainyard::data
