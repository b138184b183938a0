// dial-stdio is the far end of `--server ssh://HOST`: ssh runs it on the server's host, and it
// carries bytes between ssh and the server's socket.
#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/commands/server_choice.h"
#include "client/commands/verbs.h"
#include "client/link/dial.h"
#include "client/link/unix_socket.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct DialOptions {
  std::string path;
};

constexpr char kFarAdvice[] =
    "start one there with `trainyard up`, or name its socket: ssh://HOST/path/to/server.sock";

absl::StatusOr<link::Found> Dial(const Context& context, const DialOptions& options) {
  if (options.path.empty()) {
    return link::FindServer(LocalServers(context.surroundings), kFarAdvice);
  }
  link::Found found;
  found.candidate.address = absl::StrCat("unix:", options.path);
  TY_ASSIGN_OR_RETURN(found.fd, link::ConnectUnixSocket(found.candidate.address));
  return found;
}

Result DialStdio(const Context& context, const DialOptions& options) {
  if (isatty(STDOUT_FILENO) != 0) {
    return absl::InvalidArgumentError(
        "standard output is a terminal; `trainyard --server ssh://HOST` runs this command by "
        "itself");
  }
  const absl::StatusOr<link::Found> found = Dial(context, options);
  const absl::StatusOr<std::string> server =
      found.ok() ? absl::StatusOr<std::string>(found->candidate.address) : found.status();
  context.out << link::GreetingLine(server) << std::flush;
  // The other end has read the error, and tells it.
  if (!found.ok()) return link::ExitCodeOf(found.status());
  link::CarryStdio(found->fd.get(), STDIN_FILENO, STDOUT_FILENO);
  return link::kOk;
}

}  // namespace

void AddDialStdio(VerbTable& verbs) {
  verbs.Add<DialOptions>(
      "dial-stdio", "Carry a client's connection; --server ssh://HOST runs it on that host", "",
      [](client::Flags& flags, DialOptions& options) {
        flags.Word("PATH", options.path, "Path of the server's socket, if it is not found");
      },
      DialStdio);
}

}  // namespace trainyard::commands
