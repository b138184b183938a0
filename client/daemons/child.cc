// Starts processes by fork and exec. Between the two, only system calls are made, because another
// thread may hold a lock of the C library at that moment.
#include "client/daemons/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::daemons {
namespace {

constexpr size_t kOutputBytesMax = 1 << 20;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot make a pipe", "");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// The child's stdin is a socket. Unlike a pipe, it can be written to without SIGPIPE and without
// blocking, whatever the child does.
absl::StatusOr<Pipe> MakeInput() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "cannot make a socket", "");
  }
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Runs between fork and exec, and makes only system calls. The signal mask is that of our own
// thread, which may block SIGINT; the child begins with an empty mask.
[[noreturn]] void Exec(std::vector<char*>& argv, int in, int out, int err, bool new_session) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (new_session) setsid();
  if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0) execv(argv[0], argv.data());
  _exit(127);
}

std::vector<char*> Argv(const std::vector<std::string>& args) {
  std::vector<char*> argv;
  argv.reserve(args.size() + 1);
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  return argv;
}

int ExitCodeFrom(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

// Moves bytes until the child has closed both outputs. Returns false if the time ran out.
bool Exchange(Pipe& in, Pipe& out, Pipe& err, absl::string_view input, absl::Duration timeout,
              const std::function<void(absl::string_view)>& on_out, ChildResult& result) {
  Clock* clock = Clock::Real();
  const absl::Duration deadline = clock->Uptime() + timeout;
  std::array<char, 65536> buffer;
  while (out.read.valid() || err.read.valid()) {
    const absl::Duration left = deadline - clock->Uptime();
    if (left <= absl::ZeroDuration()) return false;
    if (input.empty() && in.write.valid()) in.write = UniqueFd();
    std::array<pollfd, 3> fds = {
        {{in.write.get(), POLLOUT, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (fds[0].revents != 0) {
      const ssize_t written =
          send(in.write.get(), input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (written >= 0) {
        input.remove_prefix(static_cast<size_t>(written));
      } else if (errno != EINTR && errno != EAGAIN) {
        in.write = UniqueFd();  // the child reads no more, and its output will say why
        input = "";
      }
    }
    const auto keep_in = [](std::string& text) {
      return [&text](absl::string_view bytes) {
        if (text.size() < kOutputBytesMax) text.append(bytes.data(), bytes.size());
      };
    };
    const auto drain = [&buffer](Pipe& pipe, const std::function<void(absl::string_view)>& take) {
      const ssize_t got = read(pipe.read.get(), buffer.data(), buffer.size());
      if (got > 0) {
        take(absl::string_view(buffer.data(), static_cast<size_t>(got)));
      } else if (got == 0 || errno != EINTR) {
        pipe.read = UniqueFd();
      }
    };
    if (fds[1].revents != 0) drain(out, on_out ? on_out : keep_in(result.out));
    if (fds[2].revents != 0) drain(err, keep_in(result.err));
  }
  return true;
}

}  // namespace

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& args, absl::string_view input,
                                     absl::Duration timeout,
                                     const std::function<void(absl::string_view)>& on_out) {
  TY_ASSIGN_OR_RETURN(Pipe in, MakeInput());
  TY_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  TY_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  std::vector<char*> argv = Argv(args);
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot start", args[0]);
  if (pid == 0) Exec(argv, in.read.get(), out.write.get(), err.write.get(), false);
  in.read = UniqueFd();
  out.write = UniqueFd();
  err.write = UniqueFd();
  ChildResult result;
  const bool is_done = Exchange(in, out, err, input, timeout, on_out, result);
  if (!is_done) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!is_done) return absl::DeadlineExceededError(absl::StrCat("'", args[0], "' took too long"));
  result.exit_code = ExitCodeFrom(status);
  return result;
}

absl::StatusOr<pid_t> StartDaemon(const std::vector<std::string>& args,
                                  const std::string& log_path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd log, OpenFile(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  TY_ASSIGN_OR_RETURN(const UniqueFd null, OpenFile("/dev/null", O_RDONLY));
  std::vector<char*> argv = Argv(args);
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot start", args[0]);
  if (pid == 0) Exec(argv, null.get(), log.get(), log.get(), true);
  return pid;
}

bool HasEnded(pid_t pid, int& exit_code) {
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) return false;
  exit_code = ExitCodeFrom(status);
  return true;
}

}  // namespace trainyard::daemons
