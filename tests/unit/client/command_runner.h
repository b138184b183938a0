// Runs the command line inside the test, against a fake server.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "client/commands/verbs.h"
#include "client/link/interrupt.h"
#include "client/output/terminal.h"
#include "common/base/env.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class CommandRunner {
 public:
  explicit CommandRunner(std::string server) {
    setenv("TZ", "UTC", 1);  // times are shown in the local time zone
    surroundings.server = std::move(server);
    surroundings.home = home.path();
    surroundings.binary_dir = home.path();
    surroundings.system_server = "unix:" + home.File("system.sock");
    surroundings.server_settings = home.File("server.yaml");
  }

  // `trainyard ARGS`, with `input` on its stdin.
  CommandResult Run(const std::vector<std::string>& args, const std::string& input = "") {
    const commands::Parsed parsed = commands::ParseCommandLine(args);
    if (!parsed.invocation.has_value()) return {parsed.exit_code, parsed.out, parsed.err};
    std::ostringstream out;
    std::ostringstream err;
    std::istringstream in(input);
    const commands::Context context = {parsed.invocation->options,
                                       surroundings,
                                       terminal,
                                       out,
                                       err,
                                       in,
                                       !input.empty(),
                                       *Clock::Real(),
                                       *Rng::Real(),
                                       interrupt,
                                       out};
    const int code = commands::Run(context, parsed.invocation->run);
    return {code, out.str(), err.str()};
  }

  TempDir home;
  commands::Surroundings surroundings;
  output::Terminal terminal;
  link::Interrupt interrupt;
};

}  // namespace trainyard::testing
