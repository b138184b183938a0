// Data sets of the MNIST kind: an idx file of images and one of labels for each split.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

// Reads `<split>-images-idx3-ubyte` and `<split>-labels-idx1-ubyte`, split `train` or `t10k`, plain
// or .gz, from `dataset_dir`/<name> or, where that has no images, from `dataset_dir`. Both files
// come from one folder. Errors as OpenDataset's.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(absl::string_view name, Split split,
                                                        const std::string& dataset_dir);

}  // namespace trainyard::data
