// Data sets: samples of one shape, addressed by index: images with a class number each, or runs of
// tokens with the token that comes next at each position.
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

// `glyphs` (generated, of the sizes in common/datasets.h unless told otherwise); `fashion-mnist`,
// `mnist`: the four idx files, plain or .gz; `cifar10`, `cifar100`: see cifar.h; `images`: see
// image_dataset.h; `tokens`, `tinyshakespeare`: see token_dataset.h. Files lie in
// `dataset_dir`/<name> or in `dataset_dir`. NOT_FOUND (DATASET_NOT_FOUND) with the paths tried, or
// the names that exist; INVALID_ARGUMENT for a size out of range; DATA_LOSS (CORRUPT_FILE) with
// file, position and value for bad bytes.
struct DatasetOptions {
  std::string dataset_dir;
  // glyphs only: numbers of samples; 0 for the default.
  int64_t train_size = 0;
  int64_t test_size = 0;
  // images and tokens: their folder in `dataset_dir`.
  std::string path = {};
  // images only: the side of a sample, and the shorter side of the image from whose middle
  // evaluation takes it; 0 for 8/7 of the sample.
  int64_t image_size = datasets::kDefaultImageSize;
  int64_t resize = 0;
  // Token data only, from the model: tokens of a sample, and the number of different ones, 0 for as
  // many as the file's numbers can tell apart.
  int64_t context = 0;
  int64_t vocabulary = 0;
};
// Checks what can be told without the files, as OpenDataset does first.
absl::Status CheckDatasetOptions(absl::string_view name, const DatasetOptions& options);
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(absl::string_view name, Split split,
                                                     const DatasetOptions& options);
// True for a path that lies below the folder of data sets, and does not lead out of it.
bool StaysBelow(absl::string_view path);
// Names that OpenDataset knows.
std::vector<std::string> DatasetNames();

// Mean and standard deviation of each channel over the training pixels; the deviation of a channel
// that does not vary is 1. Empty of tokens, which stay as they are.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> stddev;
};
// In f64, in index order: the same everywhere. Over the first 10,000 samples at most, or, where
// they are decoded, over 1,024 that lie evenly. The error of a sample that cannot be read, unless
// corrupt ones are to be skipped.
absl::StatusOr<Normalization> MeasureNormalization(const Dataset& dataset,
                                                   bool skip_corrupt = false);

}  // namespace trainyard::data
