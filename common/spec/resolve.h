// Turns what a user wrote into what runs.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/errors.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::spec {

// Returns the spec with defaults and derived values filled in (replicas = devices.count if it is
// 0). Resolving a resolved spec changes nothing. Returns INVALID_ARGUMENT with all violations at
// once: of the rules of single fields, and of those between fields. Their paths start with "spec.".
absl::StatusOr<v1::JobSpec> ResolveSpec(const v1::JobSpec& spec);

// Returns only the violations, for callers that collect those of a whole request, and fills
// `resolved` in.
std::vector<FieldViolation> ResolveInto(const v1::JobSpec& spec, v1::JobSpec& resolved);

// Returns the spec with its defaults, checked as far as a trainer depends on it: by the rules of
// the fields and by CheckTraining. Unlike ResolveSpec it accepts specs that were never submitted:
// the name may be missing, and so may the number of replicas, for which a trainer takes the size of
// its gang. Every spec that ResolveSpec accepts is accepted.
absl::StatusOr<v1::JobSpec> ResolveForTrainer(const v1::JobSpec& spec);

// Returns the number of updates in an epoch of a resolved spec, or 0 if only the data tell.
int64_t StepsPerEpoch(const v1::JobSpec& resolved);

}  // namespace trainyard::spec
