// Starts processes with pipes or files for their output, and ends what a test leaves behind.
#include "tests/testing/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "common/base/status_macros.h"

namespace trainyard::testing {
namespace {

// Redirects `target` to `path`, or to /dev/null. Between fork and exec: async-signal-safe calls
// only.
void Redirect(const char* path, int flags, int target) {
  const int fd = open(path[0] == '\0' ? "/dev/null" : path, flags, 0644);
  if (fd < 0 || dup2(fd, target) < 0) _exit(126);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Process>> Process::Start(Options options) {
  std::vector<std::string> assignments;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (options.environment.count(text.substr(0, text.find('='))) == 0) assignments.push_back(text);
  }
  for (const auto& [name, value] : options.environment) {
    assignments.push_back(absl::StrCat(name, "=", value));
  }
  std::vector<char*> argv;
  argv.reserve(options.args.size() + 1);
  for (std::string& arg : options.args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  std::vector<char*> envp;
  envp.reserve(assignments.size() + 1);
  for (std::string& assignment : assignments) envp.push_back(assignment.data());
  envp.push_back(nullptr);

  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot fork for", options.args[0]);
  if (pid == 0) {
    const bool has_terminal = !options.terminal_path.empty();
    const std::string& in = has_terminal ? options.terminal_path : options.stdin_path;
    const std::string& err = has_terminal ? options.terminal_path : options.stderr_path;
    Redirect(in.c_str(), O_RDONLY | O_NOCTTY, 0);
    Redirect(options.stdout_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 1);
    Redirect(err.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, 2);
    if (options.network_namespace >= 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
                                           setns(options.network_namespace, CLONE_NEWNET) != 0)) {
      _exit(126);
    }
    if (options.uid >= 0 && setuid(static_cast<uid_t>(options.uid)) != 0) _exit(126);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  return std::unique_ptr<Process>(new Process(pid, pidfd, std::move(options)));
}

Process::~Process() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &wait_status_, 0);
  }
  if (pidfd_ >= 0) close(pidfd_);
}

bool Process::running() {
  if (!reaped_ && waitpid(pid_, &wait_status_, WNOHANG) == pid_) reaped_ = true;
  return !reaped_;
}

void Process::Signal(int signal) {
  if (running()) kill(pid_, signal);
}

absl::StatusOr<ProcessResult> Process::Wait(absl::Duration timeout) {
  if (!reaped_) {
    pollfd wait_for{pidfd_, POLLIN, 0};
    const auto milliseconds = static_cast<int>(absl::ToInt64Milliseconds(timeout));
    if (poll(&wait_for, 1, std::max(milliseconds, 0)) == 0) {
      return absl::DeadlineExceededError(absl::StrCat("'", options_.args[0], "' still runs after ",
                                                      absl::FormatDuration(timeout),
                                                      "; it wrote:\n", Err()));
    }
    waitpid(pid_, &wait_status_, 0);
    reaped_ = true;
  }
  ProcessResult result;
  if (WIFEXITED(wait_status_)) result.exit_code = WEXITSTATUS(wait_status_);
  if (WIFSIGNALED(wait_status_)) result.signal = WTERMSIG(wait_status_);
  if (!options_.stdout_path.empty()) result.out = ReadFile(options_.stdout_path).value_or("");
  result.err = Err();
  return result;
}

std::string Process::Err() const {
  return options_.stderr_path.empty() ? "" : ReadFile(options_.stderr_path).value_or("");
}

absl::StatusOr<ProcessResult> RunProcess(Process::Options options, const std::string& scratch_dir,
                                         absl::Duration timeout) {
  static std::atomic<int> counter{0};
  const std::string stem = absl::StrCat(scratch_dir, "/run-", getpid(), "-", ++counter);
  options.stdout_path = stem + ".out";
  options.stderr_path = stem + ".err";
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<Process> process, Process::Start(std::move(options)));
  return process->Wait(timeout);
}

bool IsProcessAlive(int64_t pid, int64_t start_ticks) {
  const auto info = ReadProcess(pid);
  return info.ok() && info->start_ticks == start_ticks && info->state != 'Z' && info->state != 'X';
}

}  // namespace trainyard::testing
