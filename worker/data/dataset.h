// Data sets: samples of one shape, addressed by index: images with a class number each, or runs of
// tokens with the token that comes next at each position.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/data/augment.h"

namespace trainyard::data {

enum class Split { kTrain, kTest };

// All samples of a data set that lies in memory.
struct ByteSamples {
  absl::Span<const uint8_t> pixels;  // [size, C, H, W]
  absl::Span<const uint8_t> labels;  // [size]
};

// Thread-safe: all methods are const and the data does not change.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  // Labels are below it. Of tokens: the vocabulary.
  virtual int64_t classes() const = 0;
  // {channels, height, width}; of tokens: {positions}.
  virtual const std::vector<int64_t>& sample_shape() const = 0;
  // 1; of tokens one a position.
  virtual int64_t labels_per_row() const { return 1; }
  bool has_tokens() const { return sample_shape().size() == 1; }
  // The sample as evaluation sees it: pixels in [0, 1], channel-major (CHW), or token numbers;
  // `values` has as many elements as sample_shape(), `labels` labels_per_row(). 0 <= index <
  // size(). DATA_LOSS (CORRUPT_FILE) with file, position and value; data sets in memory have been
  // checked when they were opened.
  virtual absl::Status Read(int64_t index, absl::Span<float> values,
                            absl::Span<int32_t> labels) const = 0;
  // The sample as training sees it, as far as its framing goes: `key` is its SampleKey.
  virtual absl::Status ReadFramed(int64_t index, const Augmentation& augmentation, uint64_t key,
                                  absl::Span<float> values, absl::Span<int32_t> labels) const;
  // Its samples as bytes, of which Read gives byte / 255 in f32; empty where they do not lie so.
  virtual ByteSamples bytes() const { return {}; }
  // Reads all that there is of a sample, though Read may need less of it. Errors as Read's.
  virtual absl::Status Verify(int64_t index) const;
  // True where Read computes for so long that several threads pay.
  virtual bool decodes() const { return false; }
  // Identifies the bytes: "xxh3-128:<hex>" over the files' decoded content, images then labels, or
  // "glyphs-v1:split=train,size=20000"; of images on disk, their names, sizes and labels.
  virtual const std::string& digest() const = 0;
};

}  // namespace trainyard::data
