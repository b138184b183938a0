// Reads data sets of JPEGs, in class folders or tar shards, and decodes them as they are read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_options.h"
#include "worker/data/image_index.h"

namespace trainyard::data {

// A data set of images. It is thread-safe.
class ImageDataset : public Dataset {
 public:
  // Makes samples of [3, side, side]. Evaluation sees the middle of the image after its shorter
  // side was scaled to `resize` >= `side`.
  ImageDataset(ImageIndex index, int64_t side, int64_t resize);

  int64_t size() const override { return static_cast<int64_t>(index_.entries.size()); }
  int64_t classes() const override { return static_cast<int64_t>(index_.classes.size()); }
  const std::vector<int64_t>& sample_shape() const override { return sample_shape_; }
  absl::Status Verify(int64_t index) const override;
  bool decodes() const override { return true; }
  absl::Status Read(int64_t index, absl::Span<float> pixels,
                    absl::Span<int32_t> labels) const override;
  absl::Status ReadFramed(int64_t index, const Augmentation& augmentation, uint64_t key,
                          absl::Span<float> pixels, absl::Span<int32_t> labels) const override;
  const std::string& digest() const override { return digest_; }

 private:
  const ImageIndex index_;
  const std::vector<int64_t> sample_shape_;
  const int64_t resize_;
  const std::string digest_;
};

// Checks what can be checked without the files. Returns INVALID_ARGUMENT (INVALID_SPEC) for a path
// that leaves `dataset_dir`, and for a size out of range.
absl::Status CheckImageOptions(const DatasetOptions& options);

// Opens the images of `dataset_dir`/`path`/train, or of test or val there; see image_index.h. The
// classes are those of the training split. The options must have been checked. The errors are those
// of OpenDataset.
absl::StatusOr<std::unique_ptr<Dataset>> OpenImages(Split split, const DatasetOptions& options);
// Does the part of FindDataset for this kind.
absl::Status FindImages(Split split, const DatasetOptions& options);

}  // namespace trainyard::data
