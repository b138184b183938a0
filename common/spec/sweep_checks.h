// Checks what a sweep searches.
#pragma once

#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Adds the violations of `spec.sweep`: parameters that have no values, or that are no fields of the
// spec, an objective that no trial would report, and numbers that do not go together. Does nothing
// for a spec without a sweep.
void CheckSweep(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

}  // namespace trainyard::spec
