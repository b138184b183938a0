// Starts trainyard-enter, which goes to where a rank is, and holds the ends of what connects it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "trainyard/v1/tunnel.pb.h"
#include "worker/agent/file_owner.h"
#include "worker/enter/command_line.h"
#include "worker/enter/protocol.h"
#include "worker/run_dir/paths.h"

namespace trainyard::agent {

// Says where a rank is.
struct TunnelTarget {
  run_dir::RunDir dir;
  FileOwner owner;
};

// The helper. It is not thread-safe, except that Send may be called by any thread while it lives.
class TunnelHelper {
 public:
  // Returns what the helper is to do, or an error if the rank does not run.
  static absl::StatusOr<enter::Request> RequestFor(const TunnelTarget& target,
                                                   const v1::TunnelOpen& open);
  // Starts the program at `path`.
  static absl::StatusOr<TunnelHelper> Start(const std::string& path, const enter::Request& request);
  // Ends the helper, and with it the command, and waits until that is done. A helper that does not
  // end by itself, such as one that its owner has stopped, is killed: at once if it only connects
  // to a port, for it runs as the owner then, or after `kEndWait`.
  ~TunnelHelper();
  // A helper gives its command half a second after SIGHUP, and some time to be killed.
  static constexpr absl::Duration kEndWait = absl::Seconds(15);
  TunnelHelper(TunnelHelper&& other) noexcept;
  TunnelHelper& operator=(TunnelHelper&&) = delete;

  int control() const { return control_.get(); }
  void Send(const enter::Message& message) const { enter::SendMessage(control_.get(), message); }
  // The ends of the pipes; they are not valid for a terminal or a connection.
  UniqueFd input;
  UniqueFd output;
  UniqueFd error_output;

 private:
  TunnelHelper() = default;

  pid_t pid_ = -1;
  bool is_connection_ = false;
  UniqueFd control_;
};

}  // namespace trainyard::agent
