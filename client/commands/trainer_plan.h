// Asks the trainer that would run a spec for its memory plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::commands {

// The largest networks take longest, most of all if the trainer searches for a plan that fits.
inline constexpr absl::Duration kPlanTimeout = absl::Minutes(1);

// Runs `<binary_dir>/trainyard-trainer --plan -` with these flags, and with the spec as proto JSON
// on its stdin. Returns what it prints, or NOT_FOUND if there is no trainer. Its messages about a
// wrong spec or flag are passed on unchanged.
absl::StatusOr<std::string> AskTrainerForPlan(const std::string& binary_dir,
                                              const v1::JobSpec& spec,
                                              const std::vector<std::string>& flags,
                                              absl::Duration timeout);

// Returns the memory plan as lines of text. `memory_bytes` is the memory of a device, or 0 for that
// of this machine.
absl::StatusOr<std::string> MemoryPlan(const std::string& binary_dir, const v1::JobSpec& spec,
                                       int64_t memory_bytes);

// Turns the JSON of the trainer into lines. Numbers under "*_bytes" become sizes.
std::string PlanText(const std::string& json);

}  // namespace trainyard::commands
