// Starts the process by posix_spawn, and reads its stdout through a pipe that never blocks.
#include "worker/program/question.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "absl/cleanup/cleanup.h"

namespace trainyard::program {
namespace {

constexpr size_t kAnswerBytesMax = size_t{4} << 20;
constexpr int kLowPriority = 15;

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Question::~Question() {
  End();
}

bool Question::Start(std::vector<std::string> words, std::vector<std::string> variables,
                     const std::string& input) {
  End();
  answer_.clear();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  output_ = UniqueFd(ends[0]);
  const UniqueFd writer(ends[1]);
  (void)fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const auto destroy = absl::MakeCleanup([&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  });
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // A file in the folder of the program must not stand in for a module of Python.
  posix_spawn_file_actions_addchdir_np(&actions, "/");
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK));
  const std::vector<char*> argv = PointersTo(words);
  const std::vector<char*> envp = PointersTo(variables);
  if (posix_spawnp(&pid_, argv[0], &actions, &attributes, argv.data(), envp.data()) != 0) {
    pid_ = 0;
    return false;
  }
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(pid_), kLowPriority);
  return true;
}

bool Question::Take() {
  char block[4096];
  while (true) {
    const ssize_t got = read(output_.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno != EAGAIN;
    if (got == 0) return true;
    answer_.append(block, static_cast<size_t>(got));
    if (answer_.size() > kAnswerBytesMax) return true;
  }
}

void Question::End() {
  output_ = UniqueFd();
  if (pid_ == 0) return;
  (void)kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

}  // namespace trainyard::program
