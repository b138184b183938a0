// Turns the spec of a sweep into the values that the core decides by.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/sweep/space.h"
#include "server/core/sweeping/record.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::sweeps {

// Returns the space that a resolved sweep searches. Its parameters were checked when it began.
sweep::Space SpaceOf(const v1::SweepSpec& sweep);

// Chooses what a resolved sweep leaves open: the number of trials and of rungs, and how many trials
// are active at a time, of which the pool has room for `room`.
void ChooseOpen(int32_t room, v1::SweepSpec& sweep);

// Returns the definition of a sweep in which nothing is left open.
core::sweeping::Definition DefinitionOf(const v1::SweepSpec& sweep);

// Returns the name of the metric by which trials are compared.
const std::string& ObjectiveOf(const v1::SweepSpec& sweep);

// Returns the values of a new trial. They depend on the sweep and on the index alone.
sweep::Values ValuesOf(const v1::SweepSpec& sweep, const sweep::Space& space, int32_t trial);

// Returns the spec of the job that trains a trial with these values: a spec without a sweep, whose
// name tells the trial. Returns INVALID_ARGUMENT if a value does not fit its field.
absl::StatusOr<v1::JobSpec> SpecOfTrial(const v1::JobSpec& sweep, int32_t trial,
                                        const sweep::Values& values);

}  // namespace trainyard::sweeps
