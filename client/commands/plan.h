// The memory plan of a spec, from the trainer that would run it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::commands {

// Runs `<binary_dir>/trainyard-trainer --plan -` with the spec as proto JSON on its stdin; its
// answer as lines of text. NOT_FOUND where there is no trainer.
absl::StatusOr<std::string> MemoryPlan(const std::string& binary_dir, const v1::JobSpec& spec);

// The answer of the trainer, JSON, as lines: numbers under "*_bytes" as sizes.
std::string PlanText(const std::string& json);

}  // namespace trainyard::commands
