// Runs the loop around the pure core: files, signals and processes.
#include "worker/supervisor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/file_watch.h"
#include "common/base/log.h"
#include "common/base/processes.h"
#include "common/base/status_macros.h"
#include "worker/cgroup/group.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/isolation.h"
#include "worker/run_dir/secrets.h"
#include "worker/run_dir/supervisor_lock.h"
#include "worker/supervisor/rank_group.h"
#include "worker/supervisor/rank_sight.h"
#include "worker/supervisor/supervisor_core.h"

namespace trainyard::supervisor {
namespace {

// The loop sleeps for this long if files cannot be watched, and if they can. In the second case,
// that is what a lost event costs.
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
constexpr absl::Duration kWatchedInterval = absl::Seconds(1);
// The time between attempts to write an exit record, while the disk is full.
constexpr absl::Duration kWriteRetryFirst = absl::Milliseconds(100);
constexpr absl::Duration kWriteRetryLast = absl::Seconds(5);
// The time between two looks at the ranks' progress.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(500);
// The limit for looking at all suspects together, since their peers must be gone within 5 s of the
// failure.
constexpr absl::Duration kSightTime = absl::Milliseconds(1500);

absl::StatusOr<UniqueFd> CatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return ErrnoStatus(errno, "cannot block", "signals");
  }
  const int fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "cannot create", "signalfd");
  return UniqueFd(fd);
}

// Runs one attempt. It makes no decisions of its own: what happens is passed to the core, and what
// the core says is carried out.
class Supervisor {
 public:
  Supervisor(run_dir::RunDir dir, run_dir::Assignment assignment, std::string stack_program,
             UniqueFd signals, Clock& clock)
      : dir_(std::move(dir)),
        assignment_(std::move(assignment)),
        stack_program_(std::move(stack_program)),
        signals_(std::move(signals)),
        clock_(clock),
        core_(Ranks(assignment_)) {
    auto watch = FileWatch::Create();
    if (watch.ok() && watch->Add(dir_.root()).ok() && watch->Add(dir_.ControlDir()).ok()) {
      watch_.emplace(*std::move(watch));
    }
  }

  void Run(const std::string& trainer) {
    ReadControl();
    if (core_.Tick(clock_.Uptime()) != SignalToSend::kNone) {
      EndUnstarted({.outcome = run_dir::Outcome::kStopped});
    } else {
      const absl::Status started = Start(trainer);
      if (!started.ok()) {
        LogError("the ranks cannot be started", {{"error", std::string(started.message())}});
        EndUnstarted({.outcome = run_dir::Outcome::kTransient,
                      .reason = ReasonOr(started, "START_FAILED"),
                      .message = std::string(started.message())});
      }
    }
    while (true) {
      TakeSignals();
      Reap();
      ReadControl();
      ReadProgress();
      const SignalToSend signal = core_.Tick(clock_.Uptime());
      LookAtSuspects();
      if (signal != SignalToSend::kNone && group_.has_value()) {
        LogInfo(signal == SignalToSend::kTerm ? "SIGTERM to all ranks" : "SIGKILL to all ranks");
        group_->Signal(signal);
      }
      if (WriteExits()) return;
      Wait();
    }
  }

 private:
  static std::vector<int> Ranks(const run_dir::Assignment& assignment) {
    std::vector<int> ranks;
    for (const run_dir::RankAssignment& rank : assignment.ranks) ranks.push_back(rank.rank);
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  static std::string ReasonOr(const absl::Status& status, absl::string_view otherwise) {
    const std::string reason = ErrorReason(status);
    return reason.empty() ? std::string(otherwise) : reason;
  }

  int64_t NowMicros() { return absl::ToUnixMicros(clock_.Now()); }

  absl::Status Start(const std::string& trainer) {
    TY_ASSIGN_OR_RETURN(RankGroup group, RankGroup::Start(dir_, trainer, assignment_.ranks,
                                                          assignment_.isolation.cgroup));
    group_.emplace(std::move(group));
    run_dir::SupervisorRecord record = group_->Record();
    record.pid = getpid();
    record.boot_id = BootId();
    TY_ASSIGN_OR_RETURN(const ProcessInfo self, ReadProcess(record.pid));
    record.start_ticks = self.start_ticks;
    absl::Status written = run_dir::WriteSupervisorRecord(dir_, record);
    if (!written.ok()) {
      // If this process died, nobody would know of the ranks, so they never get through the gate.
      group_->Signal(SignalToSend::kKill);
      while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
      }
      group_.reset();
      return written;
    }
    group_->Release();
    LogInfo("ranks started", {{"ranks", absl::StrCat(assignment_.ranks.size())},
                              {"process_group", absl::StrCat(record.process_group)}});
    return absl::OkStatus();
  }

  // Every rank ends with `result` without having begun.
  void EndUnstarted(const run_dir::RankResult& result) {
    for (const run_dir::RankAssignment& rank : assignment_.ranks) {
      core_.RankEnded(clock_.Uptime(), {.rank = rank.rank,
                                        .exit_code = run_dir::ExitCode(result.outcome),
                                        .result = result,
                                        .end_time_us = NowMicros()});
    }
    core_.GroupGone();
  }

  void TakeSignals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      LogInfo("asked to stop by a signal", {{"signal", absl::StrCat(info.ssi_signo)}});
      core_.StopAsked(clock_.Uptime(), {kReasonDrained, kDefaultTermGrace});
    }
  }

  void Reap() {
    while (!core_.gone()) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid < 0 && errno == EINTR) continue;
      // Descendants that lost their parent are our children, so if there are no children, nothing
      // is left.
      if (pid < 0 && core_.all_ranks_ended()) core_.GroupGone();
      if (pid <= 0) return;
      const int rank = group_.has_value() ? group_->RankOf(pid) : -1;
      if (rank >= 0) RankEnded(rank, status);
    }
  }

  void RankEnded(int rank, int status) {
    RankEnd end;
    end.rank = rank;
    end.end_time_us = NowMicros();
    if (WIFSIGNALED(status)) {
      end.signal = WTERMSIG(status);
    } else {
      end.exit_code = WEXITSTATUS(status);
    }
    end.out_of_memory = group_->OutOfMemory(rank);
    const absl::Status start_error = group_->StartError(rank);
    if (!start_error.ok()) {
      end.result = run_dir::RankResult{.outcome = run_dir::Outcome::kTransient,
                                       .reason = "TRAINER_NOT_STARTED",
                                       .message = std::string(start_error.message())};
    } else if (auto result = run_dir::ReadRankResult(dir_, rank); result.ok()) {
      end.result = *std::move(result);
    } else if (!absl::IsNotFound(result.status())) {
      LogWarning("a result cannot be read", {{"error", std::string(result.status().message())}});
    }
    core_.RankEnded(clock_.Uptime(), end);
    LogInfo("rank ended", {{"rank", absl::StrCat(rank)},
                           {"exit_code", absl::StrCat(end.exit_code)},
                           {"signal", absl::StrCat(end.signal)}});
  }

  void ReadControl() {
    if (const auto lease = run_dir::ReadLease(dir_); lease.ok()) {
      core_.LeaseSeen(*lease);
    } else {
      LogWarning("the lease cannot be read; the last one counts",
                 {{"error", std::string(lease.status().message())}});
    }
    const auto stop = run_dir::ReadStopRequest(dir_);
    if (!stop.ok()) {
      // A request is written completely, so this one is damaged. The wish to stop is clear
      // nevertheless.
      core_.StopAsked(clock_.Uptime(), {kReasonDrained, kDefaultTermGrace});
    } else if (stop->has_value() && *stop != seen_stop_) {
      seen_stop_ = *stop;
      LogInfo("asked to stop", {{"reason", (*stop)->reason}});
      core_.StopAsked(clock_.Uptime(), **stop);
    }
  }

  void ReadProgress() {
    const absl::Duration now = clock_.Uptime();
    if (!group_.has_value() || core_.stopping() || now < progress_uptime_ + kProgressInterval) {
      return;
    }
    progress_uptime_ = now;
    for (const run_dir::RankAssignment& rank : assignment_.ranks) {
      const auto progress = run_dir::ReadProgress(dir_, rank.rank);
      // A rank need not report its progress.
      if (progress.ok()) core_.ProgressSeen(now, rank.rank, *progress);
    }
  }

  // Suspects are looked at before they are killed. What was seen goes into their logs, and into the
  // attempt's failure.
  void LookAtSuspects() {
    const absl::Duration end = clock_.Uptime() + kSightTime;
    for (const int rank : core_.TakeSuspects()) {
      const pid_t pid = group_.has_value() ? group_->PidOf(rank) : 0;
      if (pid <= 0) continue;
      const RankSight sight =
          LookAt(pid, stack_program_, std::max(end - clock_.Uptime(), absl::ZeroDuration()));
      LogWarning("a rank does not answer", {{"rank", absl::StrCat(rank)}, {"state", sight.clause}});
      const absl::Status logged = AppendToLog(
          rank, absl::StrCat("==== stacks of rank ", rank, " (process ", pid, "), which ",
                             sight.clause, " ====\n", sight.text, "==== end of stacks ====\n"));
      if (!logged.ok()) {
        LogWarning("stacks cannot be written", {{"error", std::string(logged.message())}});
      }
      core_.SuspectSeen(rank, sight.clause);
    }
  }

  absl::Status AppendToLog(int rank, absl::string_view text) {
    TY_ASSIGN_OR_RETURN(const UniqueFd log, OpenFile(dir_.LogPath(rank), O_WRONLY | O_APPEND));
    return WriteFully(log.get(), text, dir_.LogPath(rank));
  }

  // Writes what is still to be written. Returns true once exit.json of the attempt is there. It
  // never blocks: a full disk is tried again later.
  bool WriteExits() {
    if (clock_.Uptime() < write_after_) return false;
    if (core_.gone() && !FileExists(dir_.AssignmentPath())) {
      LogError("the run directory was removed; nobody is left to tell");
      return true;
    }
    absl::Status status = absl::OkStatus();
    for (const run_dir::RankExit& exit : core_.RankExits()) {
      if (written_.contains(exit.rank)) continue;
      // A rank that was never started has no folder yet.
      status.Update(dir_.CreateRankDirectory(exit.rank));
      if (status.ok()) status = run_dir::WriteRankExit(dir_, exit);
      if (status.ok()) written_.insert(exit.rank);
    }
    const bool last = status.ok() && core_.gone();
    // The daemon does so, too, but it may be away for long.
    if (last) run_dir::RemoveSecrets(dir_);
    if (last) status = run_dir::WriteAttemptExit(dir_, core_.Exit(NowMicros()));
    if (status.ok()) {
      write_retry_ = kWriteRetryFirst;
      return last;
    }
    LogError("an exit record cannot be written; trying again",
             {{"error", std::string(status.message())}});
    write_after_ = clock_.Uptime() + write_retry_;
    write_retry_ = std::min(write_retry_ * 2, kWriteRetryLast);
    return false;
  }

  void Wait() {
    const absl::Duration now = clock_.Uptime();
    absl::Duration wait = watch_.has_value() ? kWatchedInterval : kPollInterval;
    wait = std::min(wait, core_.NextDeadline() - now);
    if (write_after_ > now) wait = std::min(wait, write_after_ - now);
    pollfd fds[] = {{signals_.get(), POLLIN, 0},
                    {watch_.has_value() ? watch_->fd() : -1, POLLIN, 0}};
    const int64_t ms = std::max<int64_t>(0, absl::ToInt64Milliseconds(wait) + 1);
    (void)poll(fds, 2, static_cast<int>(ms));
    if (watch_.has_value()) (void)watch_->Take();
  }

  const run_dir::RunDir dir_;
  const run_dir::Assignment assignment_;
  const std::string stack_program_;
  const UniqueFd signals_;
  Clock& clock_;
  SupervisorCore core_;
  std::optional<FileWatch> watch_;
  std::optional<RankGroup> group_;
  std::optional<run_dir::StopRequest> seen_stop_;
  std::set<int> written_;
  absl::Duration progress_uptime_ = -absl::InfiniteDuration();
  absl::Duration write_after_ = absl::ZeroDuration();
  absl::Duration write_retry_ = kWriteRetryFirst;
};

// Enters the supervisor's group below the attempt's. A daemon that is root has put this process
// there already, since nobody else may move it so far.
void JoinGroup(const std::string& cgroup) {
  if (cgroup.empty()) return;
  const cgroup::Group own = cgroup::Group(cgroup).Child(run_dir::kSupervisorGroup);
  const std::vector<pid_t> there = own.Processes();
  if (std::find(there.begin(), there.end(), getpid()) != there.end()) return;
  if (const absl::Status joined = own.Take(0); !joined.ok()) {
    LogWarning("the supervisor stays in another control group",
               {{"error", std::string(joined.message())}});
  }
}

}  // namespace

absl::Status Supervise(const SupervisorOptions& options, Clock& clock) {
  const run_dir::RunDir dir(options.run_dir);
  TY_ASSIGN_OR_RETURN(const auto lock, run_dir::SupervisorLock::Acquire(dir));
  if (FileExists(dir.ExitPath())) return absl::OkStatus();
  if (FileExists(dir.SupervisorPath())) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SUPERVISOR_DIED",
                     absl::StrCat("the supervisor of '", dir.root(),
                                  "' died; an attempt runs once (remove supervisor.json to run it "
                                  "again by hand)"));
  }
  auto assignment = run_dir::ReadAssignment(dir);
  if (absl::IsNotFound(assignment.status())) return assignment.status();
  if (!assignment.ok() || assignment->ranks.empty()) {
    absl::Status bad = assignment.ok() ? error::CorruptFile(dir.AssignmentPath(), "lists no ranks")
                                       : assignment.status();
    TY_RETURN_IF_ERROR(
        run_dir::WriteAttemptExit(dir, {.exit_code = run_dir::kExitTransient,
                                        .outcome = run_dir::Outcome::kTransient,
                                        .reason = ErrorReason(bad),
                                        .message = std::string(bad.message()),
                                        .end_time_us = absl::ToUnixMicros(clock.Now()),
                                        .ranks = {}}));
    return bad;
  }
  TY_RETURN_IF_ERROR(MakeDirectories(dir.ControlDir()));
  JoinGroup(assignment->isolation.cgroup);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return ErrnoStatus(errno, "cannot adopt descendants of", dir.root());
  }
  TY_ASSIGN_OR_RETURN(UniqueFd signals, CatchSignals());
  Supervisor(dir, *std::move(assignment), options.stack_program, std::move(signals), clock)
      .Run(options.trainer);
  return absl::OkStatus();
}

}  // namespace trainyard::supervisor
