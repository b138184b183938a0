// One run of ssh, from its start until it carries bytes to and from a server.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/daemons/child.h"
#include "client/link/ssh_address.h"
#include "client/link/ssh_errors.h"
#include "common/base/env.h"

namespace trainyard::link {

// The server must be found in this time if ssh has nobody to ask.
inline constexpr absl::Duration kOpenTimeout = absl::Seconds(25);
// A person needs time to look for a password, or to compare the key of a host. Servers give up
// after two minutes.
inline constexpr absl::Duration kPromptTimeout = absl::Minutes(3);

// It belongs to one thread, which must outlive it. Nothing in it waits, except that it ends ssh.
class SshSession {
 public:
  static absl::StatusOr<std::unique_ptr<SshSession>> Start(const SshAddress& address,
                                                           Prompts prompts, Clock& clock);

  // The descriptors of ssh: what goes to the server, what comes from it, and messages of ssh.
  int in() const { return ssh_.in(); }
  int out() const { return ssh_.out(); }
  int err() const { return ssh_.err(); }

  // Reads what has come until the server is found. Returns true once it is: its bytes follow in
  // first_bytes() and out(). Returns why that will not happen, and false if it is not known yet.
  absl::StatusOr<bool> Open();
  // Returns the time that is left for Open.
  absl::Duration TimeLeft() const;
  const std::string& first_bytes() const { return received_; }

  // Keeps the messages of ssh. Returns false once there will be no more.
  bool ReadMessages();
  // Ends ssh, and returns why it has stopped carrying.
  absl::Status Finish();

 private:
  SshSession(const SshAddress& address, daemons::Companion ssh, absl::Duration deadline,
             Clock& clock);
  absl::Status End(SshPhase phase);

  const SshAddress address_;
  daemons::Companion ssh_;
  const absl::Duration deadline_;
  Clock& clock_;
  std::string received_;
  std::string messages_;
};

}  // namespace trainyard::link
