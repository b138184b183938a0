// Wires the server together: owns every part, builds them in order and destroys them in reverse.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/log.h"
#include "server/access/caller.h"
#include "server/core/lifecycle/config.h"
#include "server/retention.h"

namespace trainyard {

struct ServerOptions {
  std::string state_dir;
  // Each is unix:/path, or tls:HOST:PORT for other hosts. If there is no path, the server listens
  // on unix:<state_dir>/server.sock, too.
  std::vector<std::string> listen;
  LogFormat log_format = LogFormat::kText;
  core::Config config = {};
  // Starts with a database that is older than what was committed to it.
  bool accept_lost_commits = false;
  // What stays of jobs that have ended.
  KeepRules keep = {};
  // Unix sockets accept all users of this host, and not only the one that runs the server.
  bool shared = false;
  // Members of these groups of the system are administrators and operators. Empty means none.
  std::string admin_group = {};
  std::string operator_group = {};
  // The role of everybody else.
  access::Role default_role = access::Role::kSubmitter;
  // The certificate of ports of TLS: names in the server's own, or the site's files.
  std::vector<std::string> tls_names = {};
  std::string tls_cert = {};
  std::string tls_key = {};
  std::string tls_client_ca = {};
  // Entries of the audit log are deleted when they are this old; 0 keeps them for ever.
  int64_t keep_audit_us = int64_t{90} * 24 * 3600 * 1'000'000;
};

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

  // Ends watches and waiting workers with UNAVAILABLE, and lets calls that have begun finish. It
  // may be called again.
  void Stop();

 private:
  class Impl;
  explicit App(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard
