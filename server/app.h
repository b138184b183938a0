// Wires the server together: owns every part, builds them in order and destroys them in reverse.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/server_options.h"

namespace trainyard {

// Returns <state home>/trainyard/server, where the state home is $XDG_STATE_HOME, or ~/.local/state
// if that is empty.
std::string DefaultStateDir(absl::string_view xdg_state_home, absl::string_view home);

// The server as one object. Start and Stop must be called by the same thread.
class App {
 public:
  // Locks the state directory (and creates it with mode 0700 if it does not exist), opens the
  // stores, loads what they remember, listens, and then writes <state_dir>/ready with one address a
  // line. Returns STATE_LOCKED, STATE_NOT_OWNED, ADDRESS_IN_USE, INVALID_ARGUMENT for a bad
  // address, NOT_FOUND for a group that does not exist, or the errors of the stores, such as
  // COMMITS_LOST.
  static absl::StatusOr<std::unique_ptr<App>> Start(const ServerOptions& options);
  ~App();

  // Returns the addresses on which the server listens, with the ports that were chosen.
  const std::vector<std::string>& addresses() const;

  // Returns true if what it asked of the scheduler at the last call has been answered, and asks
  // again. The first call returns true.
  bool IsAlive();

  // Ends watches and waiting workers with UNAVAILABLE, and lets calls that have begun finish. It
  // may be called again.
  void Stop();

 private:
  class Impl;
  explicit App(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard
