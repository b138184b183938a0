// Derives all paths of a machine's daemons from one state directory.
#include "client/commands/machine.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"

namespace trainyard::commands {

Machine MachineOf(const Context& context, const std::string& state_dir, const std::string& listen) {
  const Surroundings& around = context.surroundings;
  Machine machine;
  machine.state_dir = state_dir;
  if (machine.state_dir.empty()) machine.state_dir = StateHome(around.state_home, around.home);
  // Daemons run in another working directory than this program.
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(machine.state_dir, ignored);
  if (!ignored) machine.state_dir = absolute.lexically_normal().string();
  if (machine.state_dir.size() > 1 && machine.state_dir.back() == '/') machine.state_dir.pop_back();
  machine.server_state_dir = JoinPath(machine.state_dir, "server");
  machine.worker_state_dir = JoinPath(machine.state_dir, "worker");
  machine.server_log = JoinPath(machine.state_dir, "server.log");
  machine.worker_log = JoinPath(machine.state_dir, "worker.log");
  machine.server_pid_file = JoinPath(machine.state_dir, "server.pid");
  machine.worker_pid_file = JoinPath(machine.state_dir, "worker.pid");
  machine.settings_file = JoinPath(machine.state_dir, "up.json");
  machine.address = listen.empty()
                        ? absl::StrCat("unix:", JoinPath(machine.server_state_dir, "server.sock"))
                        : listen;
  return machine;
}

}  // namespace trainyard::commands
