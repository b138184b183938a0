// Why a job waits and when it starts, for people: shared by explain, submit --dry-run and top.
#pragma once

#include <string>

#include "client/commands/context.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// "3rd".
std::string Ordinal(int64_t number);

// "in about 12m 03s (2026-11-21 18:00:00 UTC): when jobs/7 ends (its time limit)".
std::string StartText(const v1::Explanation& explanation);

// Lines for a person: reasons, the smallest change as a command, the expected start. `command` is
// what the changes are appended to: "trainyard submit job.yaml".
std::string ExplanationText(const Context& context, const v1::Explanation& explanation,
                            const std::string& command);

}  // namespace trainyard::commands
