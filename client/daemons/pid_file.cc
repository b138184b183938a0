// Identifies a process by its pid, its start time and the boot, because the system reuses pids.
#include "client/daemons/pid_file.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::daemons {
namespace {

constexpr absl::Duration kKillTimeout = absl::Seconds(5);

absl::StatusOr<std::string> BootId() {
  TY_ASSIGN_OR_RETURN(std::string id, ReadFile("/proc/sys/kernel/random/boot_id"));
  absl::StripAsciiWhitespace(&id);
  return id;
}

bool IsSame(const ProcessId& a, const ProcessId& b) {
  return a.pid == b.pid && a.start_ticks == b.start_ticks && a.boot_id == b.boot_id;
}

}  // namespace

absl::StatusOr<ProcessId> IdentifyProcess(pid_t pid) {
  ProcessId process;
  process.pid = pid;
  TY_ASSIGN_OR_RETURN(const std::string stat, ReadFile(absl::StrCat("/proc/", pid, "/stat")));
  // The name, in parentheses, may contain anything. Fields are counted from behind it: the first is
  // field 3, the state.
  const size_t name_end = stat.rfind(')');
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kState = 3 - 3;
  constexpr size_t kStartTime = 22 - 3;
  if (name_end == std::string::npos || fields.size() <= kStartTime ||
      !absl::SimpleAtoi(fields[kStartTime], &process.start_ticks)) {
    return absl::InternalError(absl::StrCat("cannot read /proc/", pid, "/stat"));
  }
  if (fields[kState] == "Z" || fields[kState] == "X") {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  TY_ASSIGN_OR_RETURN(process.boot_id, BootId());
  return process;
}

absl::Status WritePidFile(const std::string& path, const ProcessId& process) {
  return WriteFileAtomically(path,
                             absl::StrCat(process.pid, "\n", process.start_ticks, "\n",
                                          process.boot_id, "\n", process.note, "\n"),
                             0600);
}

std::optional<ProcessId> RunningProcess(const std::string& path) {
  const auto text = ReadFile(path, 4096);
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  ProcessId process;
  if (lines.size() < 4 || !absl::SimpleAtoi(lines[0], &process.pid) || process.pid <= 1 ||
      !absl::SimpleAtoi(lines[1], &process.start_ticks)) {
    return std::nullopt;
  }
  process.boot_id = lines[2];
  process.note = lines[3];
  const auto running = IdentifyProcess(process.pid);
  if (!running.ok() || !IsSame(*running, process)) return std::nullopt;
  return process;
}

absl::Status StopProcess(const ProcessId& process, absl::Duration grace, Clock& clock) {
  // The descriptor refers to this process for good. Whether the process is ours is checked after
  // opening it.
  const UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!fd.valid()) {
    if (errno == ESRCH) return absl::OkStatus();
    return ErrnoStatus(errno, "cannot watch process", absl::StrCat(process.pid));
  }
  const auto running = IdentifyProcess(process.pid);
  if (!running.ok() || !IsSame(*running, process)) return absl::OkStatus();
  const auto wait = [&](absl::Duration timeout) {
    const absl::Duration deadline = clock.Uptime() + timeout;
    while (true) {
      pollfd poller = {fd.get(), POLLIN, 0};
      const absl::Duration left = deadline - clock.Uptime();
      const int got =
          poll(&poller, 1, static_cast<int>(std::max<int64_t>(absl::ToInt64Milliseconds(left), 0)));
      if (got > 0) return true;
      if (left <= absl::ZeroDuration()) return false;
    }
  };
  const auto signal_it = [&fd](int number) {
    return syscall(SYS_pidfd_send_signal, fd.get(), number, nullptr, 0) == 0 || errno == ESRCH;
  };
  if (!signal_it(SIGTERM)) {
    return ErrnoStatus(errno, "cannot stop process", absl::StrCat(process.pid));
  }
  if (wait(grace)) return absl::OkStatus();
  signal_it(SIGKILL);
  if (wait(kKillTimeout)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("process ", process.pid, " does not end"));
}

}  // namespace trainyard::daemons
