// Texts that explain to people why a job waits and when it starts, for `explain` and
// `submit --dry-run`.
#pragma once

#include <string>

#include "client/commands/context.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Returns "3rd" for 3.
std::string Ordinal(int64_t number);

// Returns when the job is expected to start, and why then: "in about 12m 03s (2026-11-21 18:00:00
// UTC): when jobs/7 ends (its time limit)".
std::string StartText(const v1::Explanation& explanation);

// Returns lines with the reasons, the smallest change that would help, as a command, and the
// expected start. The change is appended to `command`, such as "trainyard submit job.yaml".
std::string ExplanationText(const Context& context, const v1::Explanation& explanation,
                            const std::string& command);

}  // namespace trainyard::commands
