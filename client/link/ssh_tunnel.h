// Carries the connections of a gRPC channel to a server on another host, through the user's own
// ssh: docs/adr/0015-a-server-over-ssh.md.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/interrupt.h"
#include "client/link/relay.h"
#include "client/link/ssh_address.h"
#include "client/link/ssh_session.h"
#include "common/base/env.h"
#include "common/base/files.h"

namespace trainyard::link {

// gRPC connects to a socket of this process without a name in the file system. Behind it, one
// thread runs one ssh, and starts another one when gRPC connects again:
//
//             1 ssh greets            3 gRPC connects
//   opening ------------------> idle -----------------> carrying
//     ^  | 2 it fails                                     |
//     |  v                 5 gRPC connects                | 4 either end has gone
//   closed <----------------------------------------------+
//
// In `opening` gRPC may have connected already; edge 3 then follows at once. Only the first ssh may
// ask the user for anything: a question in the middle of a table would be missed. Once ssh was
// refused, no other is started, since servers lock out who tries again and again.
//
// The class is thread-safe.
class SshTunnel {
 public:
  // Starts ssh, and waits until it has found the server. The user may be asked for a password on
  // the terminal. Ctrl-C ends the wait with CANCELLED.
  static absl::StatusOr<std::unique_ptr<SshTunnel>> Open(const SshAddress& address,
                                                         Interrupt& interrupt, Clock& clock);
  // Ends ssh.
  ~SshTunnel();
  SshTunnel(const SshTunnel&) = delete;
  SshTunnel& operator=(const SshTunnel&) = delete;

  // Returns the name of the socket for gRPC, "unix-abstract:...".
  const std::string& target() const { return target_; }
  // Returns why the last connection has failed or ended, or OK if there is one.
  absl::Status error() const;

 private:
  SshTunnel(const SshAddress& address, Clock& clock);

  absl::Status Listen();
  void Stop();
  // Only the thread calls these functions.
  void Run();
  void Wait();
  void Start(Prompts prompts);
  void Accept();
  void TryToOpen();
  void Attach();
  void Carry();
  void Close(const absl::Status& why);
  void Tell(const absl::Status& status);
  bool stopping() const;

  const SshAddress address_;
  Clock& clock_;
  std::string target_;
  UniqueFd listener_;
  UniqueFd wake_;

  // Only the thread touches these members.
  std::unique_ptr<SshSession> session_;
  bool is_open_ = false;  // the session has found its server
  bool has_messages_ = false;
  bool is_refused_ = false;
  UniqueFd peer_;  // the connection of gRPC
  std::optional<OneWay> to_server_;
  std::optional<OneWay> to_client_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  // The result of the last attempt; unset during the first one.
  std::optional<absl::Status> status_;

  std::thread thread_;
};

}  // namespace trainyard::link
