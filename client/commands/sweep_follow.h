// Follows a sweep to its end.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "trainyard/v1/sweep_service.pb.h"

namespace trainyard::commands {

// Shows the sweep until it ends: as a table that is redrawn on a terminal, and as a line for each
// decision elsewhere. With `prints_decisions`, the decisions are the data that the user asked for.
// Returns the sweep as it ended, or nothing after Ctrl-C, which stops the following but not the
// sweep. A server that is away for a while is waited for.
absl::StatusOr<std::optional<v1::Sweep>> FollowSweep(const Context& context, link::ServerLink& link,
                                                     const std::string& name,
                                                     bool prints_decisions);

// Returns exit code 0 for a sweep that runs or has succeeded, and 8 for one that has ended
// otherwise.
link::ExitCode SweepExitCode(const v1::Sweep& sweep);

}  // namespace trainyard::commands
