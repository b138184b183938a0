// Reads addresses such as ssh://anna@lab:2222/run/trainyard/trainyard.sock, and says how ssh is to
// be called for them. Nothing of an address may ever be taken for an option of ssh or for a command
// of a shell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::link {

struct SshAddress {
  // The account on the host. If it is empty, the user's ssh decides.
  std::string user;
  // The name of a host, or of an entry of the user's ssh configuration, or an IP address.
  std::string host;
  // The port, or 0 if the user's ssh decides.
  uint16_t port = 0;
  // The path of the server's socket on the host. If it is empty, the server is looked for there.
  std::string path;

  // Returns "ssh://..." again.
  std::string ToString() const;
};

bool IsSshAddress(absl::string_view text);

// Parses an address. Returns INVALID_ARGUMENT with the value and what is wrong with it otherwise.
absl::StatusOr<SshAddress> ParseSshAddress(absl::string_view text);

// Says whether ssh may ask the user for a password or about a host key.
enum class Prompts { kAllowed, kForbidden };

// Returns the program and its arguments.
std::vector<std::string> SshCommand(const SshAddress& address, Prompts prompts);

// Returns the command that ssh hands to the shell of the account: `trainyard dial-stdio`, with the
// path of the socket if it is not empty.
std::string RemoteCommand(absl::string_view path);

// Returns the text as one word of a shell.
std::string ShellWord(absl::string_view text);

}  // namespace trainyard::link
