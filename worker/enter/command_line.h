// Reads the command line of trainyard-enter, which the worker daemon writes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/enter/target.h"

namespace trainyard::enter {

// The owner that the helper becomes.
struct Owner {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

struct TerminalSize {
  int columns = 0;
  int rows = 0;
};

// Says what is to be done beside a rank: connect to a port, or execute words.
struct Request {
  RankProcess rank;
  std::optional<Owner> owner;  // unset if the owner is the user of the daemon
  int port = 0;                // 0 for a command
  std::optional<TerminalSize> terminal;
  std::string term;                // $TERM
  std::vector<std::string> words;  // the shell if it is empty
};

// Makes the arguments for a request, and reads them back. Reading returns INVALID_ARGUMENT with the
// argument that is wrong.
std::vector<std::string> ArgumentsOf(const Request& request);
absl::StatusOr<Request> ParseArguments(const std::vector<std::string>& arguments);

}  // namespace trainyard::enter
