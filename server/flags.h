// Declares the command line of trainyard-server.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "server/app.h"

namespace trainyard {

struct ParsedFlags {
  ServerOptions options;
  // Set if there is nothing left to do: after --help and --version (0), or bad usage (2).
  std::optional<int> exit_code;
  // Set if the program is to do this in place of running a server: backup, restore or check.
  // Returns the exit code.
  std::function<int()> task;
};

// Parses the flags, and prints help, version or what is wrong. `default_state_dir` is used without
// --state_dir.
ParsedFlags ParseFlags(int argc, char** argv, const std::string& default_state_dir);

}  // namespace trainyard
