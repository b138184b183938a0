// Runs one rank of a job with a program of the user's: starts it, takes over what it writes, tells
// it what is asked of it, and says how it ended.
#pragma once

#include <string>

#include "common/base/env.h"
#include "worker/run_dir/paths.h"

namespace trainyard::program {

// The reasons with which such a rank fails.
inline constexpr char kReasonIdle[] = "IDLE_LIMIT";        // it did nothing for idle_limit
inline constexpr char kReasonFailed[] = "PROGRAM_FAILED";  // it exited with another code than 0
inline constexpr char kReasonNotStarted[] = "PROGRAM_NOT_STARTED";  // it could not be executed
inline constexpr char kReasonPreparation[] = "PREPARATION_FAILED";  // its environment
inline constexpr char kReasonNoMeeting[] = "RANKS_DID_NOT_MEET";

// An exit code with which a program asks for another attempt: EX_TEMPFAIL of sysexits.h.
inline constexpr int kExitTryAgain = 75;

// These settings come from the environment. Only main reads them.
struct Surroundings {
  std::string path;        // $PATH
  std::string home;        // $HOME
  std::string cache = {};  // $XDG_CACHE_HOME, or empty
};

// Runs the rank to its end, and returns the exit code of this process: that of the program, or 128
// and its signal, as shells have it. The result is in result.json.
int RunRank(const run_dir::RunDir& dir, int rank, const Surroundings& around, Clock& clock);

}  // namespace trainyard::program
