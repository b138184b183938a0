// Starts the program by posix_spawn, which says why it could not be executed.
#include "worker/program/child.h"

#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/processes.h"

namespace trainyard::program {

void SetVariables(const Variables& variables) {
  for (const auto& [name, value] : variables) {
    if (value.has_value()) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
}

absl::StatusOr<Child> Child::Start(const std::vector<std::string>& words,
                                   const std::string& directory, int output) {
  // posix_spawn does not say which of the two was not found.
  if (access(directory.c_str(), X_OK) != 0) {
    return ErrnoStatus(errno, "cannot start in the folder", directory);
  }
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  argv.reserve(copies.size() + 1);
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const auto destroy = absl::MakeCleanup([&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  });
  posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  if (failed != 0) return ErrnoStatus(failed, "cannot execute", words[0]);
  return Child(pid, UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U))));
}

void Child::Stop() const {
  // A sandbox around a program does not pass signals on.
  for (const ProcessInfo& process : DescendantsOf(getpid(), ListProcesses())) {
    (void)kill(static_cast<pid_t>(process.pid), SIGTERM);
  }
}

std::optional<Child::End> Child::Poll() {
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended != pid_) return std::nullopt;
  if (WIFSIGNALED(status)) return End{.signal = WTERMSIG(status)};
  return End{.exit_code = WEXITSTATUS(status)};
}

}  // namespace trainyard::program
