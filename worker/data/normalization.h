// The numbers by which pixels are normalised, measured on a data set.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

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
