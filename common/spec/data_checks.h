// Checks a spec against its data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Returns the number of samples in the training split, or 0 if only the files tell.
int64_t TrainSplitSize(const v1::JobSpec& spec);

// Adds a violation for each thing that does not fit. `spec` has its defaults.
void CheckData(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

// Returns the name under which a worker tells that it has the data of a spec: "cifar10", or
// "images:flowers" for a folder. It is empty if every worker has them because they are generated,
// or if nobody tells: workers list the folders directly below their folder of data sets only.
std::string DatasetKey(const v1::DataSpec& data);
std::string DatasetKey(absl::string_view dataset, absl::string_view path);

}  // namespace trainyard::spec
