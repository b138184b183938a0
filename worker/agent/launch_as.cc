// Forks, gives up all rights in the child, and executes. This process has threads, so the child
// makes system calls only: a lock of the C library may be held by a thread that the child lacks.
#include "worker/agent/launch_as.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {
namespace {

constexpr char kPath[] = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
constexpr int kFailed = 127;

// The steps of the child, for the message that says which one failed.
enum class Step : int {
  kGroup,
  kSession,
  kDescriptors,
  kLimits,
  kIdentity,
  kWayBack,
  kPrivileges,
  kDirectory,
  kExecute
};

absl::string_view Text(Step step) {
  switch (step) {
    case Step::kGroup:
      return "cannot enter the control group of";
    case Step::kSession:
      return "cannot begin a session for";
    case Step::kDescriptors:
      return "cannot set up the descriptors of";
    case Step::kLimits:
      return "cannot limit";
    case Step::kIdentity:
      return "cannot become the owner of the job to execute";
    case Step::kWayBack:
      return "could still get rights back, and so did not execute";
    case Step::kPrivileges:
      return "cannot give up further rights before executing";
    case Step::kDirectory:
      return "cannot enter the run directory to execute";
    case Step::kExecute:
      return "cannot execute";
  }
  return "cannot start";
}

struct Failure {
  Step step;
  int error;
};

// Everything that the child needs, made before the fork.
struct Plan {
  std::vector<char*> words;
  std::vector<char*> environment;
  const char* directory;
  FileOwner owner;
  rlimit core;
  rlimit files;
  rlimit processes;
  int group;  // where it writes itself into a control group, or -1
  int log;
  int output;
  int null;
  int report;
};

[[noreturn]] void Fail(int report, Step step, int error) {
  const Failure failure{step, error};
  (void)!write(report, &failure, sizeof failure);
  _exit(kFailed);
}

void RestoreSignals() {
  for (int number = 1; number < NSIG; ++number) (void)signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Moves the report out of the way of 0, 1 and 2, and closes all that is above it. Returns its new
// number, or -1.
int ArrangeDescriptors(const Plan& plan) {
  constexpr int kReport = 3;
  const int log = fcntl(plan.log, F_DUPFD, kReport + 1);
  const int output = fcntl(plan.output, F_DUPFD, kReport + 1);
  const int null = fcntl(plan.null, F_DUPFD, kReport + 1);
  const int report = fcntl(plan.report, F_DUPFD, kReport + 1);
  if (log < 0 || output < 0 || null < 0 || report < 0) return -1;
  if (dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0 || dup3(report, kReport, O_CLOEXEC) < 0) {
    return -1;
  }
  if (syscall(SYS_close_range, kReport + 1, ~0U, 0U) == 0) return kReport;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  for (int fd = kReport + 1; fd < static_cast<int>(limit.rlim_cur); ++fd) close(fd);
  return kReport;
}

// These are the system's calls, since those of the C library speak to threads that are not here.
bool BecomeOwner(const FileOwner& owner) {
  return syscall(SYS_setgroups, owner.groups.size(), owner.groups.data()) == 0 &&
         syscall(SYS_setresgid, owner.gid, owner.gid, owner.gid) == 0 &&
         syscall(SYS_setresuid, owner.uid, owner.uid, owner.uid) == 0;
}

// Returns true if the process is the owner in every respect, and cannot become anybody else.
bool IsBoundTo(const FileOwner& owner) {
  std::array<uid_t, 3> uids{};
  std::array<gid_t, 3> gids{};
  if (getresuid(&uids[0], &uids[1], &uids[2]) != 0) return false;
  if (getresgid(&gids[0], &gids[1], &gids[2]) != 0) return false;
  for (const uid_t uid : uids) {
    if (uid != owner.uid) return false;
  }
  for (const gid_t gid : gids) {
    if (gid != owner.gid) return false;
  }
  if (owner.uid == 0) return true;
  return syscall(SYS_setuid, 0) != 0 && syscall(SYS_setresuid, -1, 0, -1) != 0 &&
         syscall(SYS_setgroups, 0, nullptr) != 0;
}

[[noreturn]] void BecomeProgram(const Plan& plan) {
  RestoreSignals();
  if (plan.group >= 0 && write(plan.group, "0", 1) != 1) Fail(plan.report, Step::kGroup, errno);
  if (setsid() < 0) Fail(plan.report, Step::kSession, errno);
  const int report = ArrangeDescriptors(plan);
  if (report < 0) Fail(plan.report, Step::kDescriptors, errno);
  umask(077);
  if (setrlimit(RLIMIT_CORE, &plan.core) != 0 || setrlimit(RLIMIT_NOFILE, &plan.files) != 0 ||
      setrlimit(RLIMIT_NPROC, &plan.processes) != 0) {
    Fail(report, Step::kLimits, errno);
  }
  if (!BecomeOwner(plan.owner)) Fail(report, Step::kIdentity, errno);
  if (!IsBoundTo(plan.owner)) Fail(report, Step::kWayBack, EPERM);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Fail(report, Step::kPrivileges, errno);
  if (chdir(plan.directory) != 0) Fail(report, Step::kDirectory, errno);
  execve(plan.words[0], plan.words.data(), plan.environment.data());
  Fail(report, Step::kExecute, errno);
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// No limit is raised above that of this daemon.
absl::StatusOr<rlimit> LimitOf(int resource, int64_t wanted) {
  rlimit limit{};
  const auto kind = static_cast<__rlimit_resource>(resource);
  if (getrlimit(kind, &limit) != 0) return ErrnoStatus(errno, "cannot read", "resource limits");
  limit.rlim_max = std::min(limit.rlim_max, static_cast<rlim_t>(wanted));
  limit.rlim_cur = limit.rlim_max;
  return limit;
}

bool IsPassedOn(absl::string_view variable) {
  for (const absl::string_view name : {"LANG=", "TZ=", "LD_LIBRARY_PATH="}) {
    if (absl::StartsWith(variable, name)) return true;
  }
  for (const absl::string_view prefix :
       {"LC_", "CUDA_", "CUDNN_", "NVIDIA_", "NCCL_", "OMP_", "GOMP_", "DNNL_", "ONEDNN_"}) {
    if (absl::StartsWith(variable, prefix)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> EnvironmentOf(const Account& account, const std::string& cache_home,
                                       const char* const* variables) {
  std::vector<std::string> environment = {
      absl::StrCat("HOME=", account.home), absl::StrCat("USER=", account.name),
      absl::StrCat("LOGNAME=", account.name), absl::StrCat("SHELL=", account.shell),
      absl::StrCat("PATH=", kPath)};
  if (!cache_home.empty()) environment.push_back(absl::StrCat("XDG_CACHE_HOME=", cache_home));
  for (; *variables != nullptr; ++variables) {
    if (IsPassedOn(*variables)) environment.emplace_back(*variables);
  }
  return environment;
}

absl::StatusOr<pid_t> LaunchAs(const Account& account, const LaunchOptions& options) {
  std::vector<std::string> words = options.words;
  std::vector<std::string> environment = EnvironmentOf(account, options.cache_home, environ);
  TY_ASSIGN_OR_RETURN(const UniqueFd null, OpenFile("/dev/null", O_RDONLY));
  TY_ASSIGN_OR_RETURN(const rlimit core, LimitOf(RLIMIT_CORE, options.limits.core_bytes));
  TY_ASSIGN_OR_RETURN(const rlimit files, LimitOf(RLIMIT_NOFILE, options.limits.open_files));
  const int64_t wanted = options.limits.processes == 0 ? static_cast<int64_t>(RLIM_INFINITY)
                                                       : options.limits.processes;
  TY_ASSIGN_OR_RETURN(const rlimit processes, LimitOf(RLIMIT_NPROC, wanted));
  UniqueFd group;
  if (!options.cgroup.empty()) {
    TY_ASSIGN_OR_RETURN(group, OpenFile(JoinPath(options.cgroup, "cgroup.procs"), O_WRONLY));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot create", "pipe");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const Plan plan{Pointers(words),
                  Pointers(environment),
                  options.directory.c_str(),
                  account.owner,
                  core,
                  files,
                  processes,
                  group.get(),
                  options.log,
                  options.output < 0 ? options.log : options.output,
                  null.get(),
                  writer.get()};
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot fork for", words[0]);
  if (pid == 0) BecomeProgram(plan);
  writer = UniqueFd();
  Failure failure{};
  ssize_t got = 0;
  // A successful exec closes the pipe without a message.
  while ((got = read(reader.get(), &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  if (got != static_cast<ssize_t>(sizeof failure)) return pid;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return Annotate(ErrnoStatus(failure.error, Text(failure.step), words[0]),
                  absl::StrCat("as ", account.name));
}

}  // namespace trainyard::agent
