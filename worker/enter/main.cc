// trainyard-enter goes to where a rank is: it runs a command beside the rank's program, or connects
// to a port there. The worker daemon starts it, with a socket as descriptor 3.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "common/base/tunnel_errors.h"
#include "worker/enter/command_line.h"
#include "worker/enter/entering.h"
#include "worker/enter/monitor.h"
#include "worker/enter/protocol.h"
#include "worker/enter/target.h"

namespace trainyard::enter {
namespace {

int Fail(const char* reason, const absl::Status& status) {
  SendMessage(kControlFd, Failed{reason, std::string(status.message())});
  return 1;
}

int Run(const std::vector<std::string>& arguments) {
  if (fcntl(kControlFd, F_SETFD, FD_CLOEXEC) != 0) {
    (void)std::fprintf(stderr, "trainyard-enter is started by trainyard-worker\n");
    return 2;
  }
  (void)signal(SIGPIPE, SIG_IGN);
  const auto request = ParseArguments(arguments);
  if (!request.ok()) return Fail(error::kCannotEnter, request.status());
  absl::StatusOr<Target> target = LookAsOwner(*request);
  if (!target.ok()) {
    return Fail(absl::IsNotFound(target.status()) ? error::kRankEnded : error::kCannotEnter,
                target.status());
  }
  if (request->port == 0) return RunCommand(*target, *request);
  // A connection belongs to its network namespace. The other ones do not matter to it.
  target->namespaces &= CLONE_NEWUSER | CLONE_NEWNET;
  target->root = UniqueFd(open("/", O_PATH | O_CLOEXEC));
  const absl::Status entered = Enter(*target, *request);
  if (!entered.ok()) return Fail(error::kCannotEnter, entered);
  auto connection = ConnectToPort(request->port);
  if (!connection.ok()) return Fail(error::kCannotConnect, connection.status());
  SendMessage(kControlFd, Opened{*std::move(connection)});
  return 0;
}

}  // namespace
}  // namespace trainyard::enter

int main(int argc, char** argv) {
  return trainyard::enter::Run(std::vector<std::string>(argv + 1, argv + argc));
}
