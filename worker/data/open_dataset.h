// Opens a data set by its name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_options.h"

namespace trainyard::data {

// Checks what can be checked without the files. OpenDataset begins with this.
absl::Status CheckDatasetOptions(absl::string_view name, const DatasetOptions& options);

// Opens a split of a data set. It knows `glyphs` (generated, with the sizes in common/datasets.h
// unless the options give others); `fashion-mnist`, `mnist`: the four idx files, plain or .gz;
// `cifar10`, `cifar100`: see cifar.h; `images`: see image_dataset.h; `tokens`, `tinyshakespeare`:
// see token_dataset.h. Files lie in `dataset_dir`/<name> or in `dataset_dir`. Returns NOT_FOUND
// (DATASET_NOT_FOUND) with the paths that were tried, or the names that exist; NOT_FOUND
// (DATASET_INCOMPLETE) if only a part of the split is there; INVALID_ARGUMENT for a size out of
// range, or DATASET_TOO_SMALL for a split without a sample; DATA_LOSS (CORRUPT_FILE) with file,
// position and value for bad bytes.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(absl::string_view name, Split split,
                                                     const DatasetOptions& options);

// Looks for the files of a split without reading them. The errors are those of OpenDataset for what
// is missing.
absl::Status FindDataset(absl::string_view name, Split split, const DatasetOptions& options);

// Returns the names that OpenDataset knows.
std::vector<std::string> DatasetNames();

}  // namespace trainyard::data
