// A yard whose server has a port with TLS, and what comes to such a port: people at laptops,
// workers with certificates, and strangers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/tls/issue.h"
#include "tests/integration/yard.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

class TlsYard {
 public:
  // Listens on a free port of the loopback interface, or on `port`. An empty `state_dir` is one of
  // its own.
  explicit TlsYard(uint16_t port = 0, const std::string& state_dir = "");

  // Starts the server, and finds its port.
  void StartServer();
  Yard& yard() { return yard_; }
  uint16_t port() const { return port_; }
  // Returns "tls://127.0.0.1:41234", and the same without "tls://".
  std::string address() const;
  std::string target() const;
  std::string fingerprint() const;
  // Returns the authority of the server, with its key, as nobody but the server has it.
  tls::KeyPair Authority() const;

  // Makes a token for the account of the test with `tokens create` and these flags.
  std::string CreateToken(const std::vector<std::string>& flags = {});
  // Writes `text` to a file that only the account of the test may read, and returns its path.
  std::string SecretFile(const std::string& text);
  // Makes a certificate of `authority` for a worker, as if it had joined at `now`.
  static tls::KeyPair WorkerIdentity(const tls::KeyPair& authority, const std::string& worker,
                                     absl::Time now);

  // A channel to the port by somebody who has a token, or "".
  std::shared_ptr<grpc::Channel> ChannelWith(const std::string& token) const;
  // A channel to the port by somebody who shows a certificate.
  std::shared_ptr<grpc::Channel> ChannelOf(const tls::KeyPair& identity);
  // Asks who the server thinks the channel's owner is.
  static absl::Status WhoAmI(grpc::Channel& channel, std::string* user = nullptr);

  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
  Yard yard_;
  uint16_t port_;
  int files_ = 0;
};

// Somebody who has a client and a home directory, and no account on the server's host.
class Laptop {
 public:
  // The client gets these variables too.
  explicit Laptop(std::map<std::string, std::string> environment = {})
      : environment_(std::move(environment)) {}

  // Runs `trainyard ARGS`. The client reads `input` as its standard input.
  ProcessResult Run(const std::vector<std::string>& args, const std::string& input = "");
  // Starts a client that goes on. Its output comes into the file that Written reads. It may have a
  // terminal in place of its input and its errors.
  std::unique_ptr<Process> Start(const std::vector<std::string>& args, const std::string& name,
                                 const std::string& terminal_path = "");
  std::string Written(const std::string& name) const;
  std::string Config() const;
  const TempDir& home() const { return home_; }

 private:
  Process::Options Client(const std::vector<std::string>& args) const;

  TempDir home_;
  const std::map<std::string, std::string> environment_;
};

}  // namespace trainyard::testing
