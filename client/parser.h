// The command line. The only file that knows CLI11.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/commands/options.h"

namespace trainyard::client {

struct Parsed {
  // Unset where the command line asks for nothing: `exit_code` and the texts say what to print.
  std::optional<commands::Options> options;
  int exit_code = 0;
  std::string out;
  std::string err;
};

// `args` without the program's name.
Parsed ParseCommandLine(const std::vector<std::string>& args);

// Every verb with its flags, for completion.
std::vector<commands::VerbInfo> DescribeVerbs();

}  // namespace trainyard::client
