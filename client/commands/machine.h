// Declares where the daemons of a machine keep their state and their pid files, for `up` and
// `down`.
#pragma once

#include <string>

#include "client/commands/context.h"

namespace trainyard::commands {

struct Machine {
  std::string state_dir;
  std::string server_state_dir;  // <state_dir>/server
  std::string worker_state_dir;  // <state_dir>/worker
  std::string server_log;        // <state_dir>/server.log
  std::string worker_log;
  std::string server_pid_file;  // <state_dir>/server.pid
  std::string worker_pid_file;
  std::string settings_file;  // <state_dir>/up.json
  // The address from `listen`, or else unix:<state_dir>/server/server.sock.
  std::string address;
};

// Derives the paths from `state_dir`, or from $XDG_STATE_HOME/trainyard, or from
// ~/.local/state/trainyard. Paths become absolute.
Machine MachineOf(const Context& context, const std::string& state_dir,
                  const std::string& listen = "");

}  // namespace trainyard::commands
