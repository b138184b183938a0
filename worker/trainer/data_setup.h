// From the spec to the data: which data set, and what is done to its samples.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetch.h"
#include "worker/run_dir/training_spec.h"

namespace trainyard::trainer {

data::DatasetOptions MakeDatasetOptions(const run_dir::TrainingSpec& spec,
                                        const std::string& dataset_dir);
data::Augmentation MakeAugmentation(const run_dir::AugmentSpec& spec);

struct LoadedData {
  std::unique_ptr<data::Dataset> dataset;
  data::Preparation preparation;
};
// Opens the training split and measures its normalisation where the spec asks for it; images are
// decoded by `threads` threads.
absl::StatusOr<LoadedData> LoadTrainData(const run_dir::TrainingSpec& spec,
                                         const data::DatasetOptions& options, int threads);

// Whether digest, input shape and classes are what the spec says; all violations at once.
absl::Status CheckData(const run_dir::TrainingSpec& spec, const data::Dataset& dataset);

}  // namespace trainyard::trainer
