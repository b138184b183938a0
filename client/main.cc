// trainyard is the command line. Data goes to stdout, messages for people go to stderr, and the
// exit code tells scripts whether the command succeeded (docs/cli.md).
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "client/commands/verbs.h"
#include "client/output/terminal.h"
#include "common/base/program_paths.h"
#include "common/rpc/channel.h"

namespace {

using trainyard::commands::Context;
using trainyard::commands::Surroundings;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> Variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

trainyard::output::TerminalSettings TerminalSettings(bool no_color) {
  trainyard::output::TerminalSettings settings;
  settings.no_color = no_color;
  settings.term = Environment("TERM");
  settings.has_no_color = !Environment("NO_COLOR").empty();
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (settings.locale.empty()) settings.locale = Environment(name);
  }
  return settings;
}

// The first Ctrl-C asks the command to stop in order; another one before it has done so ends it at
// once.
void HandleInterrupts(const sigset_t& signals, trainyard::link::Interrupt& interrupt) {
  while (true) {
    int number = 0;
    if (sigwait(&signals, &number) != 0) continue;
    if (interrupt.triggered() || interrupt.may_exit()) _exit(trainyard::link::kInterrupted);
    interrupt.Trigger();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed =
      trainyard::commands::ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  std::cout << parsed.out;
  std::cerr << parsed.err;
  if (!parsed.invocation.has_value()) return parsed.exit_code;

  // Signals are blocked before any thread exists, so that only the thread below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  trainyard::rpc::KeepConnecting();
  // In `trainyard logs | head`, a failed write ends the command, and not a signal in the middle of
  // a call.
  signal(SIGPIPE, SIG_IGN);
  static trainyard::link::Interrupt interrupt;
  std::thread([&signals] { HandleInterrupts(signals, interrupt); }).detach();

  const Surroundings surroundings = {Environment("TRAINYARD_SERVER"),
                                     Environment("XDG_CONFIG_HOME"),
                                     Environment("XDG_STATE_HOME"),
                                     Environment("HOME"),
                                     trainyard::ProgramFolder(),
                                     Environment("TRAINYARD_CONTEXT"),
                                     Variables()};
  const trainyard::commands::GlobalOptions& options = parsed.invocation->options;
  const auto terminal = trainyard::output::DetectTerminal(TerminalSettings(options.no_color));
  const Context context = {options,
                           surroundings,
                           terminal,
                           std::cout,
                           std::cerr,
                           std::cin,
                           isatty(STDIN_FILENO) != 0 && terminal.err_is_terminal,
                           *trainyard::Clock::Real(),
                           *trainyard::Rng::Real(),
                           interrupt,
                           std::cout};
  const int code = trainyard::commands::Run(context, parsed.invocation->run);
  std::cout.flush();
  std::cerr.flush();
  // The thread that waits for signals never ends, so the program exits without waiting for
  // destructors.
  _exit(code);
}
