// Starts and cleans up after supervisors by plain system calls, so that a supervisor inherits
// nothing of this daemon.
#include "worker/agent/launch.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/processes.h"
#include "common/base/status_macros.h"
#include "worker/agent/act_as.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/supervisor_lock.h"

namespace trainyard::agent {
namespace {

std::string TrainerOf(const Programs& programs, const std::string& backend) {
  if (backend == run_dir::kProgramBackend) return programs.program;
  return backend == "cpu" ? programs.trainer : absl::StrCat(programs.trainer, "-", backend);
}

// Holds what a dead supervisor has left in the files of the attempt.
struct Remains {
  std::optional<run_dir::SupervisorRecord> record;
  std::optional<run_dir::StopRequest> stop;
  run_dir::Assignment assignment;  // lists no ranks if it cannot be read
  std::vector<run_dir::RankExit> exits;
};

Remains ReadRemains(const run_dir::RunDir& dir) {
  Remains remains;
  if (auto read = run_dir::ReadSupervisorRecord(dir); read.ok()) remains.record = *std::move(read);
  if (auto stop = run_dir::ReadStopRequest(dir); stop.ok()) remains.stop = *std::move(stop);
  if (auto read = run_dir::ReadAssignment(dir); read.ok()) remains.assignment = *std::move(read);
  for (const run_dir::RankAssignment& rank : remains.assignment.ranks) {
    if (auto exit = run_dir::ReadRankExit(dir, rank.rank); exit.ok()) {
      remains.exits.push_back(*std::move(exit));
    }
  }
  return remains;
}

// Returns true if the process is of the attempt: it carries the run directory in its environment,
// or it is the supervisor or a rank, whose pids and starts are on record.
bool IsOfAttempt(const ProcessInfo& process, const run_dir::RunDir& dir,
                 const std::optional<run_dir::SupervisorRecord>& record) {
  if (ProcessVariable(process.pid, "TRAINYARD_ATTEMPT_DIR") == dir.root()) return true;
  if (!record.has_value() || record->boot_id != BootId()) return false;
  if (record->pid == process.pid && record->start_ticks == process.start_ticks) return true;
  return std::any_of(record->ranks.begin(), record->ranks.end(), [&process](const auto& rank) {
    return rank.pid == process.pid && rank.start_ticks == process.start_ticks;
  });
}

// Kills a process if it is still the one that was looked at, and is the owner's: an environment and
// a record say what their owner wants them to say.
bool Kill(const ProcessInfo& process, uid_t uid) {
  // The descriptor stays with this process, whoever gets its number next.
  const UniqueFd handle(
      static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0U)));
  if (!handle.valid()) return false;
  const auto now = ReadProcess(process.pid);
  const auto is_owners = IsProcessOf(process.pid, uid);
  if (!now.ok() || now->start_ticks != process.start_ticks || !is_owners) return false;
  (void)syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0U);
  return true;
}

// Kills what is left of the attempt. Returns the number of processes that are still ending.
int KillLeftBehind(const run_dir::RunDir& dir, const FileOwner& owner,
                   const std::optional<run_dir::SupervisorRecord>& record) {
  // Without a name, every process that lacks the variable would match.
  TY_CHECK(!dir.root().empty());
  int left = 0;
  for (const ProcessInfo& process : ListProcesses()) {
    if (process.state == 'Z' || process.state == 'X' || process.pid == getpid()) continue;
    if (!IsOfAttempt(process, dir, record)) continue;
    if (Kill(process, owner.is_self ? geteuid() : owner.uid)) ++left;
  }
  return left;
}

run_dir::AttemptExit ExitOf(const Remains& remains, int64_t now_us) {
  const bool rebooted = remains.record.has_value() && remains.record->boot_id != BootId();
  const bool stopped = remains.stop.has_value();
  run_dir::AttemptExit exit;
  exit.outcome = stopped ? run_dir::Outcome::kStopped : run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::ExitCode(exit.outcome);
  exit.reason = stopped ? remains.stop->reason : "SUPERVISOR_DIED";
  exit.message = rebooted ? "the machine was restarted while the attempt ran"
                          : "the supervisor of the attempt died, and its ranks with it";
  exit.end_time_us = now_us;
  const std::vector<run_dir::RankAssignment>& ranks = remains.assignment.ranks;
  if (!stopped && !ranks.empty()) exit.failed_rank = ranks.front().rank;
  for (const run_dir::RankAssignment& rank : ranks) {
    const auto ended =
        std::find_if(remains.exits.begin(), remains.exits.end(),
                     [&rank](const run_dir::RankExit& known) { return known.rank == rank.rank; });
    if (ended != remains.exits.end()) {
      exit.ranks.push_back(*ended);
      continue;
    }
    run_dir::RankExit killed;
    killed.rank = rank.rank;
    killed.signal = SIGKILL;
    killed.outcome = exit.outcome;
    killed.reason = exit.reason;
    killed.message = exit.message;
    killed.end_time_us = exit.end_time_us;
    exit.ranks.push_back(std::move(killed));
  }
  return exit;
}

}  // namespace

// Restores the signals that a program expects, because this daemon blocks some for its own
// purposes.
absl::StatusOr<pid_t> StartProgram(std::vector<std::string> words, const std::string& out,
                                   const std::string& err) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  auto destroy = absl::MakeCleanup([&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  });
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID));
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  if (failed != 0) return ErrnoStatus(failed, "cannot execute", words[0]);
  return pid;
}

absl::StatusOr<pid_t> LaunchSupervisor(const Programs& programs, const run_dir::RunDir& dir,
                                       const std::string& backend) {
  const std::string log = dir.SupervisorLogPath();
  return StartProgram(
      {programs.supervisor, "--run_dir", dir.root(), "--trainer", TrainerOf(programs, backend)},
      log, log);
}

absl::StatusOr<pid_t> LaunchSupervisorAs(const Account& account, const Programs& programs,
                                         const run_dir::RunDir& dir, const std::string& backend,
                                         const std::string& cache_home, const std::string& cgroup) {
  absl::StatusOr<UniqueFd> log = [&] {
    const ActAs as(account.owner);
    return OpenRegularFile(dir.SupervisorLogPath(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  }();
  TY_RETURN_IF_ERROR(log.status());
  LaunchOptions options;
  options.words = {programs.supervisor, "--run_dir", dir.root(), "--trainer",
                   TrainerOf(programs, backend)};
  options.directory = dir.root();
  options.cache_home = cache_home;
  options.log = log->get();
  options.limits = programs.limits;
  options.cgroup = cgroup;
  // The group bounds the processes of the attempt alone, and not those of its owner's other work.
  if (!cgroup.empty()) options.limits.processes = 0;
  return LaunchAs(account, options);
}

absl::Status RecordDeath(const run_dir::RunDir& dir, const FileOwner& owner, Clock& clock) {
  std::optional<run_dir::SupervisorLock> lock;
  Remains remains;
  {
    const ActAs as(owner);
    // The lock is held until exit.json is written, so that no supervisor starts in between.
    TY_ASSIGN_OR_RETURN(auto taken, run_dir::SupervisorLock::Acquire(dir));
    lock.emplace(std::move(taken));
    if (FileExists(dir.ExitPath())) return absl::OkStatus();
    remains = ReadRemains(dir);
  }
  if (const int left = KillLeftBehind(dir, owner, remains.record); left > 0) {
    return absl::UnavailableError(
        absl::StrCat(left, " processes of '", dir.root(), "' are still ending"));
  }
  const ActAs as(owner);
  return run_dir::WriteAttemptExit(dir, ExitOf(remains, absl::ToUnixMicros(clock.Now())));
}

void EndProcesses(const run_dir::RunDir& dir, const FileOwner& owner) {
  std::optional<run_dir::SupervisorRecord> record;
  {
    const ActAs as(owner);
    if (auto read = run_dir::ReadSupervisorRecord(dir); read.ok()) record = *std::move(read);
  }
  const int killed = KillLeftBehind(dir, owner, record);
  if (killed == 0) return;
  LogWarning("processes of an attempt were still there after its end and were killed",
             {{"run_dir", dir.root()}, {"processes", absl::StrCat(killed)}});
}

absl::Status RecordUnstarted(const run_dir::RunDir& dir, const FileOwner& owner,
                             const absl::Status& cause, Clock& clock) {
  const ActAs as(owner);
  TY_ASSIGN_OR_RETURN(const auto lock, run_dir::SupervisorLock::Acquire(dir));
  if (FileExists(dir.ExitPath()) || FileExists(dir.SupervisorPath())) return absl::OkStatus();
  run_dir::AttemptExit exit;
  exit.outcome = run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::kExitTransient;
  exit.reason = ErrorReason(cause).empty() ? "SUPERVISOR_NOT_STARTED" : ErrorReason(cause);
  exit.message = std::string(cause.message());
  exit.end_time_us = absl::ToUnixMicros(clock.Now());
  return run_dir::WriteAttemptExit(dir, exit);
}

}  // namespace trainyard::agent
