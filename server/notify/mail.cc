// Runs sendmail with pipes, and waits for it with a limit.
#include "server/notify/mail.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"

namespace trainyard::notify {
namespace {

constexpr size_t kComplaintBytesMax = 300;
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

// Starts the program with these ends of pipes. Returns 0 or the error.
int Start(const std::string& sendmail, const Pipe& in, const Pipe& complaint, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, complaint.write.get(), STDERR_FILENO);
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
  std::string words[] = {sendmail, "-i", "-t"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* variables[] = {path.data(), nullptr};
  const int failed = posix_spawn(&pid, sendmail.c_str(), &actions, &attributes, argv, variables);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return failed;
}

// Reads what there is, and forgets the rest.
void TakeComplaint(int fd, std::string& text) {
  char buffer[512];
  const ssize_t got = read(fd, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<size_t>(got));
  if (text.size() > kComplaintBytesMax) text.resize(kComplaintBytesMax);
}

Sent ResultOf(int status, std::string complaint) {
  complaint =
      std::string(absl::StripAsciiWhitespace(absl::StrReplaceAll(complaint, {{"\n", " "}})));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {true, false, "sendmail took it"};
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const bool is_final = code == EX_USAGE || code == EX_DATAERR || code == EX_NOUSER;
  return {
      false, !is_final,
      absl::StrCat("sendmail exited with code ", code, complaint.empty() ? "" : ": ", complaint)};
}

}  // namespace

Sent SendMail(const std::string& sendmail, const std::string& mail,
              const std::atomic<bool>& is_stopping) {
  if (sendmail.empty()) return {false, false, "this server sends no mail (--sendmail)"};
  Pipe in = MakePipe();
  Pipe complaint = MakePipe();
  pid_t pid = 0;
  if (const int failed = Start(sendmail, in, complaint, pid); failed != 0) {
    return {false, true, std::string(ErrnoStatus(failed, "cannot execute", sendmail).message())};
  }
  in.read = UniqueFd();
  complaint.write = UniqueFd();
  // A mail is smaller than a pipe, so this does not wait for the program to read.
  (void)WriteFully(in.write.get(), mail, sendmail);
  in.write = UniqueFd();
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)));
  const absl::Duration end = Clock::Real()->Uptime() + kSendmailTimeout;
  std::string text;
  bool has_ended = false;
  bool is_open = true;
  while (!has_ended && !is_stopping && Clock::Real()->Uptime() < end) {
    pollfd fds[] = {{handle.get(), POLLIN, 0}, {is_open ? complaint.read.get() : -1, POLLIN, 0}};
    (void)poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(kLookInterval)));
    if ((fds[1].revents & POLLIN) != 0) {
      TakeComplaint(complaint.read.get(), text);
    } else if (fds[1].revents != 0) {
      is_open = false;
    }
    has_ended = (fds[0].revents & POLLIN) != 0;
  }
  if (!has_ended) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!has_ended) return {false, true, "sendmail took too long"};
  return ResultOf(status, std::move(text));
}

}  // namespace trainyard::notify
