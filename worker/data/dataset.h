// Defines data sets. They have samples of one shape, addressed by index: images with a class number
// each, or runs of tokens with the next token at each position.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/datasets.h"
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

// These are the options of OpenDataset. It knows `glyphs` (generated, with the sizes in
// common/datasets.h unless the options give others); `fashion-mnist`, `mnist`: the four idx files,
// plain or .gz; `cifar10`, `cifar100`: see cifar.h; `images`: see image_dataset.h; `tokens`,
// `tinyshakespeare`: see token_dataset.h. Files lie in `dataset_dir`/<name> or in `dataset_dir`.
// It returns NOT_FOUND (DATASET_NOT_FOUND) with the paths that were tried, or the names that exist;
// INVALID_ARGUMENT for a size out of range; DATA_LOSS (CORRUPT_FILE) with file, position and value
// for bad bytes.
struct DatasetOptions {
  std::string dataset_dir;
  // For glyphs: the numbers of samples. 0 means the default.
  int64_t train_size = 0;
  int64_t test_size = 0;
  // For images and tokens: their folder in `dataset_dir`.
  std::string path = {};
  // For images: the side of a sample, and the shorter side of the image from whose middle
  // evaluation takes it. 0 means 8/7 of the sample.
  int64_t image_size = datasets::kDefaultImageSize;
  int64_t resize = 0;
  // For tokens, from the model: the tokens of a sample, and the number of different tokens. 0 means
  // as many as the file's numbers can represent.
  int64_t context = 0;
  int64_t vocabulary = 0;
};
// Checks what can be checked without the files. OpenDataset begins with this.
absl::Status CheckDatasetOptions(absl::string_view name, const DatasetOptions& options);
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(absl::string_view name, Split split,
                                                     const DatasetOptions& options);
// Returns true for a path that lies below the folder of data sets, and does not lead out of it.
bool StaysBelow(absl::string_view path);
// Returns the names that OpenDataset knows.
std::vector<std::string> DatasetNames();

// The mean and standard deviation of each channel over the training pixels. The deviation of a
// channel that does not vary is 1. Both are empty for tokens, which are not normalised.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> stddev;
};
// Computes the normalization in f64, in index order, so that it is the same everywhere. It uses the
// first 10,000 samples at most, or, if samples must be decoded, 1,024 that are spread evenly.
// Returns the error of a sample that cannot be read, unless corrupt ones are to be skipped.
absl::StatusOr<Normalization> MeasureNormalization(const Dataset& dataset,
                                                   bool skip_corrupt = false);

}  // namespace trainyard::data
