// Checks the rules between those fields that say what is computed, independent of the data and the
// devices.
#pragma once

#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Adds a violation for each thing that does not fit together. `spec` has its defaults.
void CheckTraining(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
