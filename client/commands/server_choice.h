// Chooses the server that a command talks to, and says why it is that one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/config/config_file.h"
#include "client/link/unix_socket.h"

namespace trainyard::commands {

struct ServerChoice {
  std::string address;
  // The name of the context that names the server, or an empty text.
  std::string context;
  // A clause that says why it is this server, such as "--server names it".
  std::string reason;
};

// Returns the first of these that is given: --server, --context, $TRAINYARD_SERVER,
// $TRAINYARD_CONTEXT, the current context of the config file; else the first of these that is
// there: the server of the user's own `trainyard up`, and the server of the machine. If there is
// none, the error says what was tried.
absl::StatusOr<ServerChoice> ChooseServer(const Context& context);

// Returns where servers of this machine may be: the user's own, and then the one for all.
std::vector<link::Candidate> LocalServers(const Surroundings& around);

// Reads the user's config file.
absl::StatusOr<config::ConfigFile> LoadConfig(const Context& context);

}  // namespace trainyard::commands
