// Sets signals and executes; nothing else is shared with the runner.
#include "worker/program/become.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace trainyard::program {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};

int Execute(char** words) {
  execvp(words[0], words);
  const int reason = errno;
  std::fprintf(stderr, "trainyard: cannot execute '%s': %s\n", words[0], strerror(reason));
  return reason == ENOENT ? 127 : 126;
}

}  // namespace

int BecomeProgram(int argc, char** argv) {
  if (argc >= 3 && strcmp(argv[1], kShieldFlag) == 0) {
    for (const int number : kSignals) (void)signal(number, SIG_IGN);
    return Execute(argv + 2);
  }
  if (argc >= 4 && strcmp(argv[1], kInsideFlag) == 0) {
    for (const int number : kSignals) (void)signal(number, SIG_DFL);
    const int mark = open(argv[2], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (mark >= 0) close(mark);
    return Execute(argv + 3);
  }
  return -1;
}

}  // namespace trainyard::program
