// Waits for the command, the rank and the daemon at once.
#include "worker/enter/monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/errors.h"
#include "common/base/processes.h"
#include "common/base/tunnel_errors.h"
#include "worker/enter/entering.h"
#include "worker/enter/protocol.h"

namespace trainyard::enter {
namespace {

// Programs have this long to save something after the signal that their terminal has gone.
constexpr int kHangUpMs = 500;
constexpr int kLookMs = 10;
// A process that starts others as fast as it can is caught in one of so many looks.
constexpr int kLooksMax = 1000;

// Ends like a process that `status` describes.
[[noreturn]] void EndLike(int status) {
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  const rlimit none{0, 0};
  (void)setrlimit(RLIMIT_CORE, &none);
  (void)signal(WTERMSIG(status), SIG_DFL);
  (void)raise(WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

// Runs in the child. In another namespace of processes, one more child is needed to be in it.
[[noreturn]] void BecomeCommand(const Target& target, const Request& request) {
  const absl::Status entered = Enter(target, request);
  if (!entered.ok()) {
    SendMessage(kControlFd, Failed{error::kCannotEnter, std::string(entered.message())});
    _exit(127);
  }
  if ((target.namespaces & CLONE_NEWPID) == 0) Execute(target, request);
  const pid_t inner = fork();
  if (inner == 0) Execute(target, request);
  int status = 127 << 8;
  for (const int descriptor : {0, 1, 2, kControlFd}) close(descriptor);
  while (inner > 0 && waitpid(inner, &status, 0) < 0 && errno == EINTR) {
  }
  EndLike(status);
}

std::vector<ProcessInfo> Below() {
  return DescendantsOf(getpid(), ListProcesses());
}

// Sends a signal to a process if it is still the one that was looked at. This process is root, so
// a number that belongs to another one by now would do harm.
void SendTo(const ProcessInfo& process, int number) {
  // The descriptor stays with this process, whoever gets its number next.
  const UniqueFd handle(
      static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0U)));
  if (!handle.valid()) return;
  const auto now = ReadProcess(process.pid);
  if (!now.ok() || now->start_ticks != process.start_ticks) return;
  (void)syscall(SYS_pidfd_send_signal, handle.get(), number, nullptr, 0U);
}

void Reap() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

// Ends all that is below this process.
void EndAll() {
  for (const ProcessInfo& process : Below()) {
    SendTo(process, SIGHUP);
    SendTo(process, SIGCONT);
  }
  for (int waited = 0; waited < kHangUpMs; waited += kLookMs) {
    Reap();
    if (Below().empty()) return;
    (void)poll(nullptr, 0, kLookMs);
  }
  for (int look = 0; look < kLooksMax; ++look) {
    const std::vector<ProcessInfo> left = Below();
    if (left.empty()) return;
    for (const ProcessInfo& process : left) SendTo(process, SIGKILL);
    Reap();
    (void)poll(nullptr, 0, kLookMs);
  }
}

// Sends the signal to the process group of the command: its own, or that of the child which is in
// another namespace.
void PassOn(int number, pid_t child, bool has_inner) {
  const std::vector<ProcessInfo> below = Below();
  for (const ProcessInfo& leader : below) {
    const bool is_leader = has_inner ? leader.parent == child : leader.pid == child;
    if (!is_leader) continue;
    // Until it has a session of its own, its group is that of this process.
    const bool has_group = leader.group == leader.pid;
    if (has_group && leader.pid == child) {
      // Its number stays its own, for this process has not waited for it yet.
      (void)kill(-child, number);
      continue;
    }
    for (const ProcessInfo& process : below) {
      const bool is_meant = has_group ? process.group == leader.pid : process.pid == leader.pid;
      if (is_meant) SendTo(process, number);
    }
  }
}

// Returns false if the daemon has closed the socket.
bool TakeSignals(pid_t child, bool has_inner) {
  while (true) {
    const auto message = ReceiveMessage(kControlFd);
    if (!message.ok()) return false;
    if (!message->has_value()) return true;
    if (const auto* signal = std::get_if<Signal>(&**message)) {
      PassOn(signal->number, child, has_inner);
    }
  }
}

}  // namespace

int RunCommand(const Target& target, const Request& request) {
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t child = fork();
  if (child < 0) {
    SendMessage(kControlFd,
                Failed{error::kCannotEnter,
                       std::string(ErrnoStatus(errno, "cannot start", "a process").message())});
    return 1;
  }
  if (child == 0) BecomeCommand(target, request);
  // The pipes end when the command has closed them.
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int descriptor : {0, 1, 2}) (void)dup2(null.get(), descriptor);
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, child, 0U)));
  const bool has_inner = (target.namespaces & CLONE_NEWPID) != 0;
  while (true) {
    pollfd fds[] = {
        {kControlFd, POLLIN, 0}, {process.get(), POLLIN, 0}, {target.rank.get(), POLLIN, 0}};
    if (poll(fds, 3, -1) < 0 && errno != EINTR) return 1;
    if (fds[1].revents != 0) break;
    if (fds[2].revents != 0) {
      EndAll();
      SendMessage(kControlFd,
                  Failed{error::kRankEnded, "the rank has ended, and the command with it"});
      return 0;
    }
    if (fds[0].revents != 0 && !TakeSignals(child, has_inner)) {
      EndAll();
      return 0;
    }
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Ended ended;
  if (WIFSIGNALED(status)) {
    ended.signal = WTERMSIG(status);
  } else {
    ended.code = WEXITSTATUS(status);
  }
  // Processes that it has left behind may hold the pipes open.
  EndAll();
  SendMessage(kControlFd, ended);
  return 0;
}

}  // namespace trainyard::enter
