// Starts and cleans up after supervisors by plain system calls, so that a supervisor inherits
// nothing of this daemon.
#include "worker/agent/launch.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/supervisor_lock.h"

namespace trainyard::agent {
namespace {

// Finds the living processes of the attempt. They carry the run directory in their environment, or
// are ranks of which the supervisor has recorded pid and start.
std::vector<int64_t> LeftBehind(const run_dir::RunDir& dir,
                                const std::optional<run_dir::SupervisorRecord>& record) {
  // Without a name, every process that lacks the variable would match.
  TY_CHECK(!dir.root().empty());
  std::vector<int64_t> pids;
  for (const ProcessInfo& process : ListProcesses()) {
    if (process.state == 'Z' || process.state == 'X' || process.pid == getpid()) continue;
    bool ours = ProcessVariable(process.pid, "TRAINYARD_RUN_DIR") == dir.root();
    if (record.has_value() && record->boot_id == BootId()) {
      for (const run_dir::SupervisorRecord::Process& rank : record->ranks) {
        ours = ours || (rank.pid == process.pid && rank.start_ticks == process.start_ticks);
      }
    }
    if (ours) pids.push_back(process.pid);
  }
  return pids;
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
  const std::string trainer =
      backend == "cpu" ? programs.trainer : absl::StrCat(programs.trainer, "-", backend);
  const std::string log = dir.SupervisorLogPath();
  return StartProgram({programs.supervisor, "--run_dir", dir.root(), "--trainer", trainer}, log,
                      log);
}

absl::Status RecordDeath(const run_dir::RunDir& dir, const run_dir::Assignment& assignment,
                         Clock& clock) {
  // The lock is held until exit.json is written, so that no supervisor starts in between.
  TY_ASSIGN_OR_RETURN(const auto lock, run_dir::SupervisorLock::Acquire(dir));
  if (FileExists(dir.ExitPath())) return absl::OkStatus();
  std::optional<run_dir::SupervisorRecord> record;
  if (auto read = run_dir::ReadSupervisorRecord(dir); read.ok()) record = *std::move(read);
  const std::vector<int64_t> left = LeftBehind(dir, record);
  for (const int64_t pid : left) (void)kill(static_cast<pid_t>(pid), SIGKILL);
  if (!left.empty()) {
    return absl::UnavailableError(
        absl::StrCat(left.size(), " processes of '", dir.root(), "' are still ending"));
  }
  const bool rebooted = record.has_value() && record->boot_id != BootId();
  const auto stop = run_dir::ReadStopRequest(dir);
  const bool stopped = stop.ok() && stop->has_value();
  run_dir::AttemptExit exit;
  exit.outcome = stopped ? run_dir::Outcome::kStopped : run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::ExitCode(exit.outcome);
  exit.reason = stopped ? (*stop)->reason : "SUPERVISOR_DIED";
  exit.message = rebooted ? "the machine was restarted while the attempt ran"
                          : "the supervisor of the attempt died, and its ranks with it";
  exit.end_time_us = absl::ToUnixMicros(clock.Now());
  if (!stopped && !assignment.ranks.empty()) exit.failed_rank = assignment.ranks.front().rank;
  for (const run_dir::RankAssignment& rank : assignment.ranks) {
    if (auto ended = run_dir::ReadRankExit(dir, rank.rank); ended.ok()) {
      exit.ranks.push_back(*std::move(ended));
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
  return run_dir::WriteAttemptExit(dir, exit);
}

absl::Status RecordUnstarted(const run_dir::RunDir& dir, const absl::Status& cause, Clock& clock) {
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
