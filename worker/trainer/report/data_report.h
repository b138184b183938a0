// Makes the report that --data prints: which data sets lie in a folder, and if they can be read.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::trainer {

// Returns {"splits": [...]} with an object for each split of each data set in `dataset_dir`. Data
// sets of the kinds `images` and `tokens` are told apart by their path. Each token is a sample:
//   {"dataset": "images", "path": "pets", "split": "train", "samples": 2000, "classes": 37,
//    "shape": "3 x any x any", "digest": "xxh3-128:...", "corrupt": 1, "errors": ["..."]}
// A split that cannot be opened has errors and nothing else. With `verifies` every sample is read
// to its end. Then the first errors are listed, `corrupt` counts all, and a split that is missing
// beside others of the data set has an error too. Returns NOT_FOUND if the
// folder cannot be listed.
absl::StatusOr<std::string> ReportData(const std::string& dataset_dir, bool verifies);

}  // namespace trainyard::trainer
