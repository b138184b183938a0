// The server, wired together: owns every part, builds them in order and takes them down in reverse.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/log.h"
#include "server/core/lifecycle/config.h"

namespace trainyard {

struct ServerOptions {
  std::string state_dir;
  // unix:/path or a loopback address with its port; unix:<state_dir>/server.sock where empty.
  std::vector<std::string> listen;
  LogFormat log_format = LogFormat::kText;
  core::Config config = {};
};

// <state home>/trainyard/server, where the state home is $XDG_STATE_HOME, or ~/.local/state.
std::string DefaultStateDir(absl::string_view xdg_state_home, absl::string_view home);

// Start and Stop are called by one thread.
class App {
 public:
  // Locks the state directory (made with mode 0700 where it is not there), opens the stores, takes
  // up what they remember, listens, and then writes <state_dir>/ready with one address a line.
  // STATE_LOCKED, STATE_NOT_OWNED, ADDRESS_IN_USE, INVALID_ARGUMENT for an address, and what the
  // stores say.
  static absl::StatusOr<std::unique_ptr<App>> Start(const ServerOptions& options);
  ~App();

  // The addresses on which it listens, with the ports that were chosen.
  const std::vector<std::string>& addresses() const;

  // Watches and waiting workers end with UNAVAILABLE, calls that have begun are finished.
  // Idempotent.
  void Stop();

 private:
  class Impl;
  explicit App(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard
