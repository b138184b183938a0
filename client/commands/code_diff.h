// Shows how the code of two jobs differs, and what their programs ran in.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Prints the files that differ, and the differences of texts, up to a limit.
absl::Status PrintCodeDiff(const Context& context, link::ServerLink& link, const std::string& left,
                           const std::string& right);

// Returns what became of the files between the two, as "2 changed, 1 added", or an empty text if
// the code is the same.
absl::StatusOr<std::string> CodeChanges(const Context& context, link::ServerLink& link,
                                        const std::string& left, const std::string& right);

// Returns the environment of the newest attempt that has told one, or an empty message.
absl::StatusOr<v1::ProgramEnvironment> EnvironmentOf(link::ServerLink& link,
                                                     const std::string& job);
// Returns a table of what differs, or an empty text. What one of them has not told is no
// difference.
std::string EnvironmentDifferences(const v1::ProgramEnvironment& left,
                                   const v1::ProgramEnvironment& right,
                                   const std::string& left_title, const std::string& right_title);

}  // namespace trainyard::commands
