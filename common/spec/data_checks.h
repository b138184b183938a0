// Checks of a spec against its data set.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// The number of samples in the training split; 0 where only the files tell.
int64_t TrainSplitSize(const v1::JobSpec& spec);

// Adds what does not fit. `spec` has its defaults.
void CheckData(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
