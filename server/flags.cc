#include "server/flags.h"

#include <CLI/CLI.hpp>
#include <map>

#include "common/base/version.h"

namespace trainyard {

ParsedFlags ParseFlags(int argc, char** argv, const std::string& default_state_dir) {
  constexpr int kUsage = 2;
  ParsedFlags flags;
  flags.options.state_dir = default_state_dir;
  CLI::App app("Accepts, queues and places training jobs, and remembers all of it.");
  app.set_version_flag("--version", std::string("trainyard-server ") + Version());
  app.add_option("--state_dir", flags.options.state_dir, "Everything that the server remembers")
      ->capture_default_str();
  app.add_option("--listen", flags.options.listen,
                 "unix:/path or a loopback address with its port (127.0.0.1:7070); may be given "
                 "several times [unix:STATE_DIR/server.sock]")
      ->allow_extra_args(false);
  const std::map<std::string, LogFormat> formats = {{"text", LogFormat::kText},
                                                    {"json", LogFormat::kJson}};
  app.add_option("--log_format", flags.options.log_format, "text or json")
      ->transform(CLI::CheckedTransformer(formats));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    flags.exit_code = app.exit(error) == 0 ? 0 : kUsage;
  }
  return flags;
}

}  // namespace trainyard
