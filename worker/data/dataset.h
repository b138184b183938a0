// Defines data sets. They have samples of one shape, addressed by index: images with a class number
// each, or runs of tokens with the next token at each position.
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

// A data set. It is thread-safe: all methods are const and the data does not change.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  // Returns the number of classes. Labels are below it. For tokens this is the vocabulary.
  virtual int64_t classes() const = 0;
  // Returns {channels, height, width}, or {positions} for tokens.
  virtual const std::vector<int64_t>& sample_shape() const = 0;
  // Returns 1, or for tokens one for each position.
  virtual int64_t labels_per_row() const { return 1; }
  bool has_tokens() const { return sample_shape().size() == 1; }
  // Reads the sample as evaluation sees it: pixels in [0, 1], channel-major (CHW), or token
  // numbers. `values` has as many elements as sample_shape(), and `labels` has labels_per_row(). 0
  // <= index < size(). Returns DATA_LOSS (CORRUPT_FILE) with file, position and value; data sets in
  // memory were checked when they were opened.
  virtual absl::Status Read(int64_t index, absl::Span<float> values,
                            absl::Span<int32_t> labels) const = 0;
  // Reads the sample with the framing of training. `key` is its SampleKey.
  virtual absl::Status ReadFramed(int64_t index, const Augmentation& augmentation, uint64_t key,
                                  absl::Span<float> values, absl::Span<int32_t> labels) const;
  // Returns its samples as bytes, of which Read gives byte / 255 in f32. The result is empty if the
  // data set does not hold them so.
  virtual ByteSamples bytes() const { return {}; }
  // Reads all of a sample, though Read may need only a part. The errors are those of Read.
  virtual absl::Status Verify(int64_t index) const;
  // Returns true if Read computes for so long that several threads pay off.
  virtual bool decodes() const { return false; }
  // Identifies the bytes: "xxh3-128:<hex>" over the files' decoded content, images then labels, or
  // "glyphs-v1:split=train,size=20000". For images on disk it covers their names, sizes and labels.
  virtual const std::string& digest() const = 0;
};

}  // namespace trainyard::data
