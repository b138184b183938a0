// What data sets lie in a folder, and whether they can be read: what --data prints.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::trainer {

// {"splits": [...]} with an object for each split of each data set in `dataset_dir`, those of
// `images` and `tokens` by their path; of tokens each is a sample:
//   {"dataset": "images", "path": "pets", "split": "train", "samples": 2000, "classes": 37,
//    "shape": "3 x any x any", "digest": "xxh3-128:...", "corrupt": 1, "errors": ["..."]}
// A split that cannot be opened has errors and no more. With `verifies` every sample is read to its
// end; the first errors are told, and `corrupt` counts all. NOT_FOUND where the folder cannot be
// listed.
absl::StatusOr<std::string> ReportData(const std::string& dataset_dir, bool verifies);

}  // namespace trainyard::trainer
