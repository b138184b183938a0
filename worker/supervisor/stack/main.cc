// trainyard-stack PID prints the stacks of all threads of a process, whatever state it is in, and
// leaves it as it was.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "worker/supervisor/stack/stacks.h"

namespace {

// The caller waits for the answer, and the process is stopped in the meantime, so there is a limit.
constexpr unsigned kSecondsMax = 5;

}  // namespace

int main(int argc, char** argv) {
  char* end = nullptr;
  const long pid = argc == 2 ? std::strtol(argv[1], &end, 10) : 0;
  if (pid <= 0 || *end != '\0') {
    std::fprintf(stderr, "usage: trainyard-stack PID\nPrints the stacks of all its threads.\n");
    return 2;
  }
  alarm(kSecondsMax);
  std::string error;
  if (trainyard::supervisor::PrintStacks(static_cast<pid_t>(pid), stdout, error)) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "cannot read the stacks of process %ld: %s\n", pid, error.c_str());
  return 1;
}
