// Turns the spec into data: which data set, and what is done to its samples. Specs must come from
// ParseSpec, with their defaults.
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
// Opens the training split and measures its normalisation if the spec asks for it. `threads`
// threads decode images.
absl::StatusOr<LoadedData> LoadTrainData(const v1::JobSpec& spec,
                                         const data::DatasetOptions& options, int threads);

// Checks that digest, input shape and classes match the spec. Returns INVALID_ARGUMENT
// (INVALID_SPEC) with all violations at once.
absl::Status CheckData(const v1::JobSpec& spec, const data::Dataset& dataset);

}  // namespace trainyard::trainer
