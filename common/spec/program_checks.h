// Checks jobs that run a program of the user's own.
#pragma once

#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Adds what is wrong with `spec.program`, as it was written: its own fields, and fields beside it
// that only a model has.
void CheckProgram(const v1::JobSpec& spec, std::vector<FieldViolation>& violations);

// Removes from a resolved spec with a program the defaults that only a model has.
void ClearModelDefaults(v1::JobSpec& resolved);

}  // namespace trainyard::spec
