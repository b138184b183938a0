// Runs one rank of a job whose program is the user's own. The supervisor starts it in place of a
// trainer.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "common/base/env.h"
#include "worker/program/become.h"
#include "worker/program/runner.h"
#include "worker/run_dir/paths.h"

namespace {

// Returns a variable, or `otherwise` where it is not set.
std::string Environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

}  // namespace

int main(int argc, char** argv) {
  if (const int end = trainyard::program::BecomeProgram(argc, argv); end >= 0) return end;
  int rank = 0;
  const bool is_right = argc == 5 && std::string(argv[1]) == "--run_dir" &&
                        std::string(argv[3]) == "--rank" && absl::SimpleAtoi(argv[4], &rank);
  if (!is_right) {
    std::fprintf(stderr, "usage: trainyard-program --run_dir DIR --rank RANK\n");
    return 2;
  }
  (void)signal(SIGPIPE, SIG_IGN);
  const trainyard::program::Surroundings around = {Environment("PATH", "/usr/bin:/bin"),
                                                   Environment("HOME", "/"),
                                                   Environment("XDG_CACHE_HOME", "")};
  return trainyard::program::RunRank(trainyard::run_dir::RunDir(argv[2]), rank, around,
                                     *trainyard::Clock::Real());
}
