// Asks the trainer that would run a spec for its memory plan.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::commands {

// Runs `<binary_dir>/trainyard-trainer --plan -` with the spec as proto JSON on its stdin, and
// returns the answer as lines of text. Returns NOT_FOUND if there is no trainer.
absl::StatusOr<std::string> MemoryPlan(const std::string& binary_dir, const v1::JobSpec& spec);

// Turns the JSON of the trainer into lines. Numbers under "*_bytes" become sizes.
std::string PlanText(const std::string& json);

}  // namespace trainyard::commands
