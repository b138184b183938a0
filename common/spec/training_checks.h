// Checks between the fields that say what is computed, whatever the data and the devices are.
#pragma once

#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Adds what does not fit together. `spec` has its defaults.
void CheckTraining(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
