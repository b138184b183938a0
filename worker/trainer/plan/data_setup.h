// From the spec to the data: which data set, and what is done to its samples. Specs are as
// ParseSpec gives them, with their defaults.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_options.h"
#include "worker/data/prefetch.h"

namespace trainyard::trainer {

data::DatasetOptions MakeDatasetOptions(const v1::JobSpec& spec, const std::string& dataset_dir);
data::Augmentation MakeAugmentation(const v1::AugmentSpec& spec);

struct LoadedData {
  std::unique_ptr<data::Dataset> dataset;
  data::Preparation preparation;
};
// Opens the training split and measures its normalisation where the spec asks for it; images are
// decoded by `threads` threads.
absl::StatusOr<LoadedData> LoadTrainData(const v1::JobSpec& spec,
                                         const data::DatasetOptions& options, int threads);

// Checks that digest, input shape and classes are what the spec says. INVALID_ARGUMENT
// (INVALID_SPEC) with all violations at once.
absl::Status CheckData(const v1::JobSpec& spec, const data::Dataset& dataset);

}  // namespace trainyard::trainer
