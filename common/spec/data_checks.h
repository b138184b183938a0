// Checks a spec against its data set.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Returns the number of samples in the training split, or 0 if only the files tell.
int64_t TrainSplitSize(const v1::JobSpec& spec);

// Adds a violation for each thing that does not fit. `spec` has its defaults.
void CheckData(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
