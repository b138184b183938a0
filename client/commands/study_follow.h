// Waits for the jobs of a study, and reads what they have told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/batch_study.h"
#include "client/commands/context.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Shows the jobs until all have ended: as a table that is redrawn on a terminal, and as a line for
// each change of a state elsewhere. Returns them in the order of `jobs` as they ended, or nothing
// after Ctrl-C, which stops the following but not the jobs. A server that is away for a while is
// waited for.
absl::StatusOr<std::optional<std::vector<v1::Job>>> FollowStudy(const Context& context,
                                                                link::ServerLink& link,
                                                                const std::vector<v1::Job>& jobs);

// Reads the metrics of a job: the given one, those of which a target can be chosen, and its speed.
absl::StatusOr<StudyRun> FetchStudyRun(link::ServerLink& link, const v1::Job& job,
                                       const std::string& metric);

}  // namespace trainyard::commands
