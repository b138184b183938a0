// Runs a command beside the program of a rank and stays above it: it passes on signals, tells the
// daemon the end, and ends everything that the command has started when the command is done, when
// the rank has ended, or when the daemon closes the socket.
#pragma once

#include "worker/enter/command_line.h"
#include "worker/enter/target.h"

namespace trainyard::enter {

// Returns the exit code of this process. It has one thread.
int RunCommand(const Target& target, const Request& request);

}  // namespace trainyard::enter
