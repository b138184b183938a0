// Gives up rights and enters namespaces by system calls.
#include "worker/enter/entering.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/tunnel_errors.h"
#include "worker/enter/protocol.h"

namespace trainyard::enter {
namespace {

constexpr char kCgroupMount[] = "/sys/fs/cgroup";
constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";
constexpr int kExitCannotExecute = 127;
constexpr int kConnectTimeoutMs = 10'000;

absl::Status JoinCgroup(const Target& target) {
  if (target.cgroup.empty()) return absl::OkStatus();
  const std::string path = absl::StrCat(kCgroupMount, target.cgroup, "/cgroup.procs");
  TY_ASSIGN_OR_RETURN(const UniqueFd group, OpenFile(path, O_WRONLY));
  return WriteFully(group.get(), "0", path);
}

// Only a process of the owner may read the limits. They are no higher than those of the daemon,
// from which the ranks have theirs.
absl::Status TakeSettings(const Target& target) {
  for (int number = 0; number < static_cast<int>(RLIM_NLIMITS); ++number) {
    const auto resource = static_cast<__rlimit_resource>(number);
    rlimit theirs{};
    rlimit ours{};
    if (prlimit(static_cast<pid_t>(target.pid), resource, nullptr, &theirs) != 0 ||
        getrlimit(resource, &ours) != 0) {
      return ErrnoStatus(errno, "cannot read the limits of process", absl::StrCat(target.pid));
    }
    theirs.rlim_max = std::min(theirs.rlim_max, ours.rlim_max);
    theirs.rlim_cur = std::min(theirs.rlim_cur, theirs.rlim_max);
    if (setrlimit(resource, &theirs) != 0) {
      return ErrnoStatus(errno, "cannot take over limit", absl::StrCat(number));
    }
  }
  // These change the speed alone.
  (void)sched_setaffinity(0, sizeof target.processors, &target.processors);
  (void)setpriority(PRIO_PROCESS, 0, target.niceness);
  umask(target.umask);
  return absl::OkStatus();
}

absl::Status BecomeOwner(const Owner& owner) {
  if (setgroups(owner.groups.size(), owner.groups.data()) != 0 ||
      setresgid(owner.gid, owner.gid, owner.gid) != 0 ||
      setresuid(owner.uid, owner.uid, owner.uid) != 0) {
    return ErrnoStatus(errno, "cannot become user", absl::StrCat(owner.uid));
  }
  if (owner.uid != 0 && (setuid(0) == 0 || setgroups(0, nullptr) == 0)) {
    return absl::InternalError("rights of root could still be taken back");
  }
  return absl::OkStatus();
}

// A process may have another root than its mount namespace.
absl::Status EnterRoot(const Target& target) {
  struct stat theirs {};
  struct stat ours {};
  if (fstat(target.root.get(), &theirs) != 0 || stat("/", &ours) != 0) {
    return ErrnoStatus(errno, "cannot look at", "the root");
  }
  if (theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino) return absl::OkStatus();
  if (fchdir(target.root.get()) != 0 || chroot(".") != 0) {
    return ErrnoStatus(errno, "cannot enter", "the root of the program");
  }
  return absl::OkStatus();
}

struct Terminal {
  UniqueFd controller;
  UniqueFd line;
};

absl::StatusOr<Terminal> OpenTerminal(const TerminalSize& size) {
  Terminal terminal;
  terminal.controller = UniqueFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!terminal.controller.valid() || unlockpt(terminal.controller.get()) != 0) {
    return ErrnoStatus(errno, "cannot open", "a terminal");
  }
  // Its name may mean another one in this root.
  terminal.line =
      UniqueFd(ioctl(terminal.controller.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!terminal.line.valid()) return ErrnoStatus(errno, "cannot open", "a terminal");
  const winsize window{static_cast<uint16_t>(size.rows), static_cast<uint16_t>(size.columns), 0, 0};
  (void)ioctl(terminal.controller.get(), TIOCSWINSZ, &window);
  return terminal;
}

[[noreturn]] void Fail(const char* reason, const absl::Status& status) {
  SendMessage(kControlFd, Failed{reason, std::string(status.message())});
  _exit(kExitCannotExecute);
}

absl::Status AttachTerminal(const Terminal& terminal) {
  const int line = terminal.line.get();
  if (ioctl(line, TIOCSCTTY, 0) != 0 || dup2(line, 0) < 0 || dup2(line, 1) < 0 ||
      dup2(line, 2) < 0) {
    return ErrnoStatus(errno, "cannot use", "the terminal");
  }
  return absl::OkStatus();
}

void RestoreSignals() {
  for (int number = 1; number < NSIG; ++number) (void)signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Returns a variable of the program, or an empty text.
std::string Variable(const Target& target, absl::string_view name) {
  for (const std::string& entry : target.environment) {
    absl::string_view value = entry;
    if (absl::ConsumePrefix(&value, name) && absl::ConsumePrefix(&value, "=")) {
      return std::string(value);
    }
  }
  return "";
}

void SetEnvironment(const Target& target, const Request& request) {
  clearenv();
  for (const std::string& entry : target.environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  if (request.terminal.has_value()) {
    setenv("TERM", request.term.empty() ? "dumb" : request.term.c_str(), 1);
  }
  if (Variable(target, "PATH").empty()) setenv("PATH", kDefaultPath, 1);
}

std::string ShellOf(const Target& target) {
  const std::string shell = Variable(target, "SHELL");
  return !shell.empty() && access(shell.c_str(), X_OK) == 0 ? shell : "/bin/sh";
}

// Returns a connection, or the error number.
absl::StatusOr<UniqueFd> Connect(const sockaddr* address, socklen_t size) {
  UniqueFd connection(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.valid()) return ErrnoStatus(errno, "cannot create", "a socket");
  if (connect(connection.get(), address, size) == 0) return connection;
  int error = errno;
  if (error == EINPROGRESS) {
    pollfd look{connection.get(), POLLOUT, 0};
    if (poll(&look, 1, kConnectTimeoutMs) == 0) {
      error = ETIMEDOUT;
    } else {
      socklen_t length = sizeof error;
      (void)getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error == 0) return connection;
  return absl::UnavailableError(std::strerror(error));
}

}  // namespace

absl::StatusOr<Target> LookAsOwner(const Request& request) {
  if (!request.owner.has_value()) return FindTarget(request.rank);
  const Owner& owner = *request.owner;
  if (setgroups(owner.groups.size(), owner.groups.data()) != 0 || setegid(owner.gid) != 0 ||
      seteuid(owner.uid) != 0) {
    return ErrnoStatus(errno, "cannot act as user", absl::StrCat(owner.uid));
  }
  auto target = FindTarget(request.rank);
  if (seteuid(0) != 0 || setegid(0) != 0) {
    return ErrnoStatus(errno, "cannot act as", "root again");
  }
  return target;
}

absl::Status Enter(const Target& target, const Request& request) {
  TY_RETURN_IF_ERROR(Annotate(JoinCgroup(target), "cannot join the control group of the rank"));
  if (request.owner.has_value()) TY_RETURN_IF_ERROR(BecomeOwner(*request.owner));
  TY_RETURN_IF_ERROR(TakeSettings(target));
  if (target.namespaces != 0 && setns(target.process.get(), target.namespaces) != 0) {
    return ErrnoStatus(errno, "cannot enter the namespaces of process", absl::StrCat(target.pid));
  }
  TY_RETURN_IF_ERROR(EnterRoot(target));
  if (target.has_no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return ErrnoStatus(errno, "cannot give up", "further rights");
  }
  return absl::OkStatus();
}

void Execute(const Target& target, const Request& request) {
  RestoreSignals();
  if (setsid() < 0) Fail(error::kCannotEnter, ErrnoStatus(errno, "cannot begin", "a session"));
  Opened opened;
  if (request.terminal.has_value()) {
    absl::StatusOr<Terminal> terminal = OpenTerminal(*request.terminal);
    absl::Status attached = terminal.status();
    if (attached.ok()) attached = AttachTerminal(*terminal);
    if (!attached.ok()) Fail(error::kCannotEnter, attached);
    opened.descriptor = std::move(terminal->controller);
  }
  SetEnvironment(target, request);
  if (fchdir(target.directory.get()) != 0) {
    const std::string home = Variable(target, "HOME");
    if ((home.empty() || chdir(home.c_str()) != 0) && chdir("/") != 0) {
      Fail(error::kCannotEnter, ErrnoStatus(errno, "cannot enter", "a folder"));
    }
  }
  std::vector<std::string> words = request.words;
  if (words.empty()) words.push_back(ShellOf(target));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  SendMessage(kControlFd, std::move(opened));
  // The last is closed by a successful exec.
  (void)fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
  (void)syscall(SYS_close_range, kControlFd + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execvp(argv[0], argv.data());
  Fail(error::kCannotExecute,
       absl::UnknownError(absl::StrCat("cannot execute '", words[0], "': ", std::strerror(errno))));
}

absl::StatusOr<UniqueFd> ConnectToPort(int port) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto connection = Connect(reinterpret_cast<const sockaddr*>(&four), sizeof four);
  if (connection.ok()) return connection;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  six.sin6_addr = in6addr_loopback;
  auto second = Connect(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (second.ok()) return second;
  return absl::UnavailableError(
      absl::StrCat("nothing answers on port ", port,
                   " of the loopback of the rank: ", connection.status().message()));
}

}  // namespace trainyard::enter
