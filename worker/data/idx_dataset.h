// Reads data sets like MNIST, with an idx file of images and one of labels for each split.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

// Reads `<split>-images-idx3-ubyte` and `<split>-labels-idx1-ubyte`, with split `train` or `t10k`,
// plain or .gz, from `dataset_dir`/<name>, or from `dataset_dir` if the former lacks one of them.
// Both files must be in the same folder. The errors are those of OpenDataset.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(absl::string_view name, Split split,
                                                        const std::string& dataset_dir);
// Does the part of FindDataset for this kind.
absl::Status FindIdxDataset(absl::string_view name, Split split, const std::string& dataset_dir);

}  // namespace trainyard::data
