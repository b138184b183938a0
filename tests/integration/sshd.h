// A real sshd of the system for a test: on a port of the loopback interface, with keys, accounts
// and configuration of its own, and nothing of the machine's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/processes.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

class Sshd {
 public:
  // Returns UNAVAILABLE if the system has no sshd, or the test may not run one; skip the test then.
  static absl::StatusOr<std::unique_ptr<Sshd>> Make();
  // Ends sshd with all its sessions.
  ~Sshd();

  // Starts sshd on the port that it had before, or on a free one.
  void Start();
  // Kills sshd and all its sessions.
  void Kill();
  // Returns the processes that sshd has started, with those that they have started.
  std::vector<ProcessInfo> Sessions() const;

  // The account of the test itself.
  const std::string& account() const { return account_; }
  // Returns true if sshd also has the account `nobody`, which takes root.
  bool has_nobody() const { return is_root_; }
  // Returns "ssh://ACCOUNT@127.0.0.1:PORT" and the path.
  std::string Address(const std::string& account, const std::string& path) const;
  uint16_t port() const { return port_; }

  // Puts these lines in front of the client's ssh configuration.
  void Configure(const std::string& lines);
  // Sets what stands before the key of the account in authorized_keys.
  void Restrict(const std::string& account, const std::string& options);
  // The environment in which a client finds an `ssh` that knows this sshd alone.
  std::map<std::string, std::string> Environment() const;
  const TempDir& dir() const { return dir_; }

 private:
  Sshd();
  absl::Status MakeKeys();

  TempDir dir_;
  const bool is_root_;
  std::string account_;
  uint16_t port_ = 0;
  std::string public_key_;
  std::unique_ptr<Process> process_;
};

}  // namespace trainyard::testing
