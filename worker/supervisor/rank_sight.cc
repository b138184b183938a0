// Reads /proc, and gets stacks from a separate program, which may crash or hang without harm.
#include "worker/supervisor/rank_sight.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "common/base/status_macros.h"

namespace trainyard::supervisor {
namespace {

constexpr int64_t kProcFileBytes = 4096;
// The limit of one stack dump: a rank has tens of threads, each with tens of frames.
constexpr size_t kTextBytesMax = 256 << 10;
constexpr size_t kThreadsMax = 64;
constexpr size_t kTellingFrames = 4;
constexpr size_t kFrameNameMax = 80;

// The names of functions in which a waiting process is found.
constexpr std::pair<int64_t, absl::string_view> kWaits[] = {{SYS_futex, "futex"},
                                                            {SYS_read, "read"},
                                                            {SYS_write, "write"},
                                                            {SYS_openat, "open"},
                                                            {SYS_poll, "poll"},
                                                            {SYS_ppoll, "poll"},
                                                            {SYS_epoll_wait, "epoll_wait"},
                                                            {SYS_epoll_pwait, "epoll_wait"},
                                                            {SYS_select, "select"},
                                                            {SYS_pselect6, "select"},
                                                            {SYS_nanosleep, "nanosleep"},
                                                            {SYS_clock_nanosleep, "nanosleep"},
                                                            {SYS_recvfrom, "recv"},
                                                            {SYS_recvmsg, "recv"},
                                                            {SYS_sendto, "send"},
                                                            {SYS_sendmsg, "send"},
                                                            {SYS_connect, "connect"},
                                                            {SYS_accept4, "accept"},
                                                            {SYS_wait4, "wait"},
                                                            {SYS_waitid, "wait"},
                                                            {SYS_fsync, "fsync"},
                                                            {SYS_fdatasync, "fsync"},
                                                            {SYS_pread64, "read"},
                                                            {SYS_pwrite64, "write"},
                                                            {SYS_ioctl, "ioctl"},
                                                            {SYS_flock, "flock"},
                                                            {SYS_rt_sigtimedwait, "sigwait"}};

// Returns the system call in which a thread is: " in futex", or nothing if the kernel does not
// tell.
std::string WaitOf(const std::string& folder) {
  const auto text = ReadFile(JoinPath(folder, "syscall"), kProcFileBytes);
  int64_t number = -1;
  if (!text.ok() || !absl::SimpleAtoi(text->substr(0, text->find(' ')), &number)) return "";
  for (const auto& [candidate, name] : kWaits) {
    if (candidate == number) return absl::StrCat(" in ", name);
  }
  return absl::StrCat(" in system call ", number);
}

std::string StateOfThread(const std::string& folder) {
  const auto stat = ReadFile(JoinPath(folder, "stat"), kProcFileBytes);
  const auto info = ParseProcessStat(stat.ok() ? *stat : "");
  if (!info.ok()) return "is gone";
  const std::string state = absl::StrCat(" (", std::string(1, info->state), ")");
  switch (info->state) {
    case 'T':
      return absl::StrCat("is stopped by a signal", state);
    case 't':
      return absl::StrCat("is held by a debugger", state);
    case 'R':
      return absl::StrCat("is running", state);
    case 'S':
      return absl::StrCat("sleeps", WaitOf(folder), state);
    case 'D':
      return absl::StrCat("waits for a device or a file system", WaitOf(folder), state);
    case 'Z':
    case 'X':
      return absl::StrCat("has ended", state);
    default:
      return absl::StrCat("is in state", state);
  }
}

std::string ProcFolder(pid_t pid) {
  return absl::StrCat("/proc/", pid);
}

// Describes the threads as far as that is possible without their stacks.
std::string ThreadStates(pid_t pid) {
  const std::string tasks = JoinPath(ProcFolder(pid), "task");
  auto threads = ListDirectory(tasks);
  if (!threads.ok()) return "";
  if (threads->size() > kThreadsMax) threads->resize(kThreadsMax);
  std::string text;
  for (const std::string& thread : *threads) {
    const std::string folder = JoinPath(tasks, thread);
    const auto name = ReadFile(JoinPath(folder, "comm"), kProcFileBytes);
    absl::StrAppend(&text, "thread ", thread, " (",
                    absl::StripSuffix(name.ok() ? *name : std::string("?"), "\n"), ") ",
                    StateOfThread(folder), "\n");
  }
  return text;
}

absl::StatusOr<pid_t> StartReader(const std::string& program, pid_t pid, int output) {
  const std::string pid_text = absl::StrCat(pid);
  const pid_t child = fork();
  if (child < 0) return ErrnoStatus(errno, "cannot fork for", program);
  if (child > 0) return child;
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0) _exit(127);
  execl(program.c_str(), program.c_str(), pid_text.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

// Returns what the program prints until it ends. It is killed at the limit, and ptrace releases
// what it held.
absl::StatusOr<std::string> ReadStacks(pid_t pid, const std::string& program,
                                       absl::Duration limit) {
  if (!FileExists(program)) {
    return absl::NotFoundError(absl::StrCat("'", program, "' is not installed"));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot create", "pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  TY_ASSIGN_OR_RETURN(const pid_t child, StartReader(program, pid, write_end.get()));
  write_end = UniqueFd();
  Clock* clock = Clock::Real();
  const absl::Duration deadline = clock->Uptime() + limit;
  std::string text;
  bool is_whole = false;
  while (text.size() < kTextBytesMax) {
    const absl::Duration left = deadline - clock->Uptime();
    pollfd fd{read_end.get(), POLLIN, 0};
    if (left <= absl::ZeroDuration()) break;
    if (poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) continue;
    char bytes[4096];
    const ssize_t length = read(read_end.get(), bytes, sizeof bytes);
    if (length < 0 && errno == EINTR) continue;
    is_whole = length == 0;
    if (length <= 0) break;
    text.append(bytes, static_cast<size_t>(length));
  }
  if (!is_whole) {
    (void)kill(child, SIGKILL);
    absl::StrAppend(&text, "(cut off after ", DurationText(limit), " or ", kTextBytesMax,
                    " bytes)\n");
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

bool OnlyWaits(absl::string_view name) {
  constexpr absl::string_view kWaiting[] = {"??", "syscall", "futex", "pthread_", "__", "std::"};
  return std::any_of(std::begin(kWaiting), std::end(kWaiting),
                     [name](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

}  // namespace

std::string StateClause(pid_t pid) {
  return StateOfThread(ProcFolder(pid));
}

std::vector<std::string> TellingFrames(absl::string_view stacks) {
  std::vector<std::string> frames;
  int threads = 0;
  for (absl::string_view line : absl::StrSplit(stacks, '\n')) {
    if (absl::StartsWith(line, "thread ") && ++threads > 1) break;
    // Returns " #3 trainyard::trainer::TrainLoop::Step() (trainyard-trainer)".
    if (!absl::ConsumePrefix(&line, "  #")) continue;
    const size_t blank = line.find(' ');
    if (blank == absl::string_view::npos) continue;
    std::string name(line.substr(blank + 1, line.rfind(" (") - blank - 1));
    absl::StrReplaceAll({{"(anonymous namespace)::", ""}}, &name);
    name = name.substr(0, name.find('('));
    absl::string_view shown = name;
    absl::ConsumePrefix(&shown, "trainyard::");
    if (frames.empty() && OnlyWaits(name)) continue;
    frames.emplace_back(shown.substr(0, kFrameNameMax));
    if (frames.size() == kTellingFrames) break;
  }
  return frames;
}

RankSight LookAt(pid_t pid, const std::string& stack_program, absl::Duration limit) {
  RankSight sight;
  sight.clause = StateClause(pid);
  const absl::StatusOr<std::string> stacks = ReadStacks(pid, stack_program, limit);
  const std::vector<std::string> frames = TellingFrames(stacks.ok() ? *stacks : "");
  if (!frames.empty()) {
    absl::StrAppend(&sight.clause, ", in ", absl::StrJoin(frames, " < "));
    sight.text = *stacks;
    return sight;
  }
  sight.text = absl::StrCat(
      "no stacks: ",
      stacks.ok() ? absl::StripTrailingAsciiWhitespace(*stacks) : stacks.status().message(), "\n",
      ThreadStates(pid));
  return sight;
}

}  // namespace trainyard::supervisor
