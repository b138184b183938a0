// Follows a job that runs a program of the user's own, as if the program ran here.
#pragma once

#include <string>

#include "client/commands/context.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Prints what the program prints on stdout as it comes, and what happens to the job on stderr. At a
// terminal, Ctrl-C asks whether to stop following, to cancel the job, or to go on; elsewhere it
// stops the following, but not the job. Returns the exit code of the program if it ended with one
// that is not 0 (128 and the number of the signal that killed it), and otherwise that of FollowJob.
Result FollowProgram(const Context& context, link::ServerLink& link, const v1::Job& job);

}  // namespace trainyard::commands
