// Starts the program with pipes, and waits for it and for them with a limit.
#include "common/command/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"

namespace trainyard {
namespace {

constexpr size_t kErrorBytesMax = 4096;
// The flag of stopping is looked at this often.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe MakePipe() {
  int ends[2] = {-1, -1};
  (void)!pipe2(ends, O_CLOEXEC);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns 0 or the error.
int Start(const Command& command, const Pipe& in, const Pipe& out, const Pipe& err, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID));
  std::vector<std::string> words = command.words;
  std::vector<std::string> variables = command.environment;
  const int failed = posix_spawnp(&pid, command.words[0].c_str(), &actions, &attributes,
                                  Pointers(words).data(), Pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return failed;
}

// A stream that is read until it ends, or holds too much.
struct Stream {
  UniqueFd fd;
  std::string text = {};
  size_t bytes_max = 0;
  bool keeps_reading = false;  // what is too much is dropped
  bool is_open = true;
  bool is_full = false;

  void Read() {
    char buffer[16384];
    const ssize_t got = read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
      is_open = false;
      return;
    }
    const size_t room = bytes_max - text.size();
    text.append(buffer, std::min(room, static_cast<size_t>(got)));
    if (static_cast<size_t>(got) > room) is_full = !keeps_reading;
  }
};

// Reads what the program writes until it has ended. Returns why it has to be killed.
absl::Status Follow(const Command& command, int handle, Stream& out, Stream& err,
                    const std::atomic<bool>& is_stopping) {
  const absl::Duration end = Clock::Real()->Uptime() + command.timeout;
  bool has_ended = false;
  while (true) {
    if (is_stopping) return absl::CancelledError("this server stops");
    if (Clock::Real()->Uptime() >= end) {
      return absl::DeadlineExceededError(absl::StrCat(command.words[0], " took longer than ",
                                                      absl::FormatDuration(command.timeout),
                                                      ", and was killed"));
    }
    pollfd fds[] = {{out.is_open ? out.fd.get() : -1, POLLIN, 0},
                    {err.is_open ? err.fd.get() : -1, POLLIN, 0},
                    {has_ended ? -1 : handle, POLLIN, 0}};
    const auto wait = has_ended ? absl::ZeroDuration() : kLookInterval;
    const int ready = poll(fds, 3, static_cast<int>(absl::ToInt64Milliseconds(wait)));
    // All that the program has written is in the pipes now, also if a child of it holds them open.
    if (has_ended && ready == 0) break;
    if (fds[0].revents != 0) out.Read();
    if (fds[1].revents != 0) err.Read();
    if (out.is_full) {
      return absl::ResourceExhaustedError(
          absl::StrCat(command.words[0], " wrote more than ", kOutputBytesMax, " bytes"));
    }
    has_ended = has_ended || fds[2].revents != 0;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const Command& command,
                                         const std::atomic<bool>& is_stopping) {
  if (command.input.size() > kInputBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the input of ", command.words[0],
                                                   " is larger than ", kInputBytesMax, " bytes"));
  }
  Pipe in = MakePipe();
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  pid_t pid = 0;
  if (const int failed = Start(command, in, out, err, pid); failed != 0) {
    return ErrnoStatus(failed, "cannot execute", command.words[0]);
  }
  in.read = UniqueFd();
  out.write = UniqueFd();
  err.write = UniqueFd();
  // The input is smaller than a pipe, so this does not wait for the program to read. A program that
  // ends without reading makes it fail, and tells why by its exit. The daemon ignores SIGPIPE.
  (void)WriteFully(in.write.get(), command.input, command.words[0]);
  in.write = UniqueFd();
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)));
  Stream out_stream{std::move(out.read), "", kOutputBytesMax, false};
  Stream err_stream{std::move(err.read), "", kErrorBytesMax, true};
  const absl::Status status = Follow(command, handle.get(), out_stream, err_stream, is_stopping);
  if (!status.ok()) kill(-pid, SIGKILL);
  int wait_status = 0;
  while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (!status.ok()) return status;
  CommandResult result;
  result.exit_code =
      WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  result.out = std::move(out_stream.text);
  result.err = std::move(err_stream.text);
  return result;
}

}  // namespace trainyard
