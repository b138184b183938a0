// Finds jobs and checkpoints by the names that people use: 12, jobs/12, last, @~1, 1-10,15, and the
// name of a job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/link/server_link.h"

namespace trainyard::commands {

// The help text of a word that names jobs.
inline constexpr char kSelectorHelp[] =
    "Jobs: 12, jobs/12, last, @~1 (the one before the last), 1-10,15, or the name of one";

// A selector consists of parts, and this is one of them.
struct Selection {
  // The position counted from the newest job: 0 is `last`, 1 is `@~1`. It is -1 if the part gives
  // numbers.
  int back = -1;
  // The first and the last job number; both are included.
  int64_t first = 0;
  int64_t last = 0;
  // The name in the spec of a job, if that was given.
  std::string name = {};

  friend bool operator==(const Selection&, const Selection&) = default;
};

// Returns INVALID_ARGUMENT with the text and the accepted forms if the text names no jobs, or more
// than 1,000. Only a name that begins with a letter is taken for the name of a job.
absl::StatusOr<std::vector<Selection>> ParseSelector(absl::string_view text);

// Returns the names of the jobs, such as jobs/12, each once and in the order given. Jobs that are
// named by their number are not looked up. Returns NOT_FOUND if there are fewer jobs than a `@~N`
// asks for, or no job has the name,
// and INVALID_ARGUMENT with the candidates if several jobs have it.
absl::StatusOr<std::vector<std::string>> ResolveSelectors(link::ServerLink& link,
                                                          const std::vector<std::string>& texts);
// Resolves a selector that must name one job.
absl::StatusOr<std::string> ResolveOne(link::ServerLink& link, const std::string& text);

// Resolves a checkpoint: its full name, JOB/STEP, JOB/best, or JOB or JOB/latest for the newest.
// Returns NOT_FOUND if there is none.
absl::StatusOr<std::string> ResolveCheckpoint(link::ServerLink& link, const std::string& text);

}  // namespace trainyard::commands
