// Starts companions. They share the terminal with this process, and must not outlive it.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "client/daemons/child.h"
#include "common/base/status_macros.h"

namespace trainyard::daemons {
namespace {

// A companion whose output has ended has nothing left to do but to exit.
constexpr absl::Duration kEndGrace = absl::Seconds(1);

// Runs between fork and exec, and makes only system calls.
[[noreturn]] void ExecCompanion(char* const* argv, pid_t parent, int in, int out, int err) {
  // SIGTERM lets ssh give the terminal its echo back if it was asking for a password.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(Companion::kCannotStart);  // it has gone in the meantime
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  // Ctrl-C is for this process, which may still have something to say to its companion.
  signal(SIGINT, SIG_IGN);
  if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0) execvp(argv[0], argv);
  _exit(Companion::kCannotStart);
}

// Returns both ends of a connection; the first one does not block.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakeEnds() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "cannot make a socket", "");
  }
  std::pair<UniqueFd, UniqueFd> ends = {UniqueFd(fds[0]), UniqueFd(fds[1])};
  if (fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "cannot use a socket", "");
  return ends;
}

}  // namespace

absl::StatusOr<Companion> Companion::Start(const std::vector<std::string>& args) {
  TY_ASSIGN_OR_RETURN(auto in, MakeEnds());
  TY_ASSIGN_OR_RETURN(auto out, MakeEnds());
  TY_ASSIGN_OR_RETURN(auto err, MakeEnds());
  std::vector<char*> argv;
  argv.reserve(args.size() + 1);
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot start", args[0]);
  if (pid == 0) {
    ExecCompanion(argv.data(), parent, in.second.get(), out.second.get(), err.second.get());
  }
  return Companion(pid, std::move(in.first), std::move(out.first), std::move(err.first));
}

Companion::Companion(pid_t pid, UniqueFd in, UniqueFd out, UniqueFd err)
    : pid_(pid), in_(std::move(in)), out_(std::move(out)), err_(std::move(err)) {}

Companion::Companion(Companion&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      exit_code_(other.exit_code_),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)) {}

Companion::~Companion() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  End();
}

int Companion::End() {
  if (pid_ == 0 || WaitFor(kEndGrace)) return exit_code_;
  kill(pid_, SIGTERM);
  if (WaitFor(kEndGrace)) return exit_code_;
  kill(pid_, SIGKILL);
  while (!WaitFor(kEndGrace)) {
  }
  return exit_code_;
}

bool Companion::WaitFor(absl::Duration timeout) {
  // The child was not reaped, so its pid is still its own.
  const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (fd.valid()) {
    pollfd poller = {fd.get(), POLLIN, 0};
    poll(&poller, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  }
  if (!HasEnded(pid_, exit_code_)) return false;
  pid_ = 0;
  return true;
}

}  // namespace trainyard::daemons
