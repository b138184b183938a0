// Defines the numbers by which pixels are normalised, and measures them on a data set.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

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
