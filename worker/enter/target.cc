// Reads /proc. A pidfd is opened first and is asked last whether the process still lives, so that
// nothing of another process with the same number is taken.
#include "worker/enter/target.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/isolation.h"
#include "common/base/processes.h"
#include "common/base/status_macros.h"

namespace trainyard::enter {
namespace {

constexpr size_t kProcFileMax = size_t{4} << 20;

struct Namespace {
  const char* name;
  int flag;
};
constexpr Namespace kNamespaces[] = {{"user", CLONE_NEWUSER},    {"mnt", CLONE_NEWNS},
                                     {"pid", CLONE_NEWPID},      {"net", CLONE_NEWNET},
                                     {"ipc", CLONE_NEWIPC},      {"uts", CLONE_NEWUTS},
                                     {"cgroup", CLONE_NEWCGROUP}};

// Returns the flags of the namespaces in which two processes differ, or -1 if they may not be
// looked at.
int Differences(const std::string& one, const std::string& other) {
  int flags = 0;
  for (const Namespace& space : kNamespaces) {
    struct stat a {};
    struct stat b {};
    if (stat(absl::StrCat("/proc/", one, "/ns/", space.name).c_str(), &a) != 0 ||
        stat(absl::StrCat("/proc/", other, "/ns/", space.name).c_str(), &b) != 0) {
      return -1;
    }
    if (a.st_ino != b.st_ino || a.st_dev != b.st_dev) flags |= space.flag;
  }
  return flags;
}

std::string CommandName(int64_t pid) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/comm"), 64);
  return text.ok() ? std::string(absl::StripSuffix(*text, "\n")) : "";
}

// These make namespaces and stay in them, with the program as their child.
bool IsDoorkeeper(int64_t pid) {
  const std::string name = CommandName(pid);
  for (const char* const keeper : {"bwrap", "catatonit", "conmon", "appinit", "starter"}) {
    if (name == keeper) return true;
  }
  return false;
}

// Returns the oldest child of `parent` that belongs to the owner, or 0.
int64_t ChildOf(int64_t parent, uid_t uid, const std::vector<ProcessInfo>& processes) {
  const ProcessInfo* oldest = nullptr;
  for (const ProcessInfo& process : processes) {
    if (process.parent != parent || process.state == 'Z') continue;
    if (oldest != nullptr && oldest->start_ticks <= process.start_ticks) continue;
    if (IsProcessOf(process.pid, uid)) oldest = &process;
  }
  return oldest == nullptr ? 0 : oldest->pid;
}

// Returns the process of the program: the first one in other namespaces than the rank's, past those
// that only keep them; else the child of trainyard-program; else the rank, which is a trainer.
int64_t ProgramOf(int64_t rank, uid_t uid) {
  const std::vector<ProcessInfo> processes = ListProcesses();
  std::vector<ProcessInfo> below = DescendantsOf(rank, processes);
  std::sort(below.begin(), below.end(), [](const ProcessInfo& a, const ProcessInfo& b) {
    return std::pair(a.start_ticks, a.pid) < std::pair(b.start_ticks, b.pid);
  });
  const std::string rank_text = absl::StrCat(rank);
  for (const ProcessInfo& process : below) {
    if (Differences(absl::StrCat(process.pid), rank_text) <= 0 || !IsProcessOf(process.pid, uid)) {
      continue;
    }
    int64_t inside = process.pid;
    while (IsDoorkeeper(inside)) {
      const int64_t child = ChildOf(inside, uid, processes);
      if (child == 0) break;
      inside = child;
    }
    return inside;
  }
  if (!absl::StartsWith(CommandName(rank), "trainyard-progr")) return rank;
  const int64_t child = ChildOf(rank, uid, processes);
  return child == 0 ? rank : child;
}

absl::StatusOr<UniqueFd> OpenProcess(int64_t pid) {
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
  if (!process.valid()) return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  return process;
}

bool HasEnded(const UniqueFd& process) {
  pollfd look{process.get(), POLLIN, 0};
  return poll(&look, 1, 0) != 0;
}

UniqueFd OpenPath(int64_t pid, const char* name) {
  return UniqueFd(open(absl::StrCat("/proc/", pid, "/", name).c_str(), O_PATH | O_CLOEXEC));
}

void ReadStatus(int64_t pid, Target& target) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/status"), kProcFileMax);
  if (!text.ok()) return;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (absl::ConsumePrefix(&line, "Umask:\t")) {
      mode_t mask = 0;
      for (const char digit : line) mask = mask * 8 + static_cast<mode_t>((digit - '0') & 7);
      target.umask = mask & 0777;
    } else if (absl::ConsumePrefix(&line, "NoNewPrivs:\t")) {
      target.has_no_new_privileges = line == "1";
    }
  }
}

absl::Status ReadSettings(int64_t pid, Target& target) {
  const auto process = static_cast<pid_t>(pid);
  if (sched_getaffinity(process, sizeof target.processors, &target.processors) != 0) {
    return ErrnoStatus(errno, "cannot read the processors of process", absl::StrCat(pid));
  }
  target.niceness = getpriority(PRIO_PROCESS, static_cast<id_t>(pid));
  ReadStatus(pid, target);
  TY_ASSIGN_OR_RETURN(const std::string environment,
                      ReadFile(absl::StrCat("/proc/", pid, "/environ"), kProcFileMax));
  target.environment = absl::StrSplit(environment, '\0', absl::SkipEmpty());
  return absl::OkStatus();
}

}  // namespace

std::string AttemptGroupPath(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::/")) continue;
    for (const absl::string_view name : absl::StrSplit(line, '/')) {
      const bool is_unit = absl::EndsWith(name, ".service") || absl::EndsWith(name, ".scope");
      if (absl::StartsWith(name, kAttemptGroupPrefix) && !is_unit) return absl::StrCat("/", line);
    }
  }
  return "";
}

absl::StatusOr<Target> FindTarget(const RankProcess& rank) {
  Target target;
  TY_ASSIGN_OR_RETURN(target.rank, OpenProcess(rank.pid));
  const auto info = ReadProcess(rank.pid);
  if (!info.ok() || info->start_ticks != rank.start_ticks || info->state == 'Z') {
    return absl::NotFoundError("the rank has ended");
  }
  target.pid = ProgramOf(rank.pid, rank.uid);
  TY_ASSIGN_OR_RETURN(target.process, OpenProcess(target.pid));
  if (!IsProcessOf(target.pid, rank.uid)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "process ", target.pid, " of the rank does not belong to the owner of the job"));
  }
  target.namespaces = Differences(absl::StrCat(target.pid), "self");
  if (target.namespaces < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the namespaces of process ", target.pid, " may not be looked at"));
  }
  target.root = OpenPath(target.pid, "root");
  target.directory = OpenPath(target.pid, "cwd");
  if (!target.root.valid() || !target.directory.valid()) {
    return ErrnoStatus(errno, "cannot open the folder of process", absl::StrCat(target.pid));
  }
  TY_RETURN_IF_ERROR(ReadSettings(target.pid, target));
  const auto theirs = ReadFile(absl::StrCat("/proc/", target.pid, "/cgroup"), kProcFileMax);
  if (theirs.ok()) target.cgroup = AttemptGroupPath(*theirs);
  if (HasEnded(target.process)) return absl::NotFoundError("the program has ended");
  return target;
}

}  // namespace trainyard::enter
