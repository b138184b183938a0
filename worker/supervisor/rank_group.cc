// Starts the ranks in a process group of their own and ends all of it, with whatever they have
// started.
#include "worker/supervisor/rank_group.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/processes.h"
#include "common/base/status_macros.h"
#include "worker/cgroup/limits.h"
#include "worker/run_dir/isolation.h"

namespace trainyard::supervisor {
namespace {

// The exit code of a child that never became a trainer. The error pipe says why.
constexpr int kExecFailed = 127;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot create", "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void BindToCpus(const std::vector<int64_t>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int64_t cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
  }
  // If a processor is missing now, the rank runs unbound, which costs speed but not the job.
  (void)sched_setaffinity(0, sizeof set, &set);
}

void RestoreSignals() {
  for (int number = 1; number < NSIG; ++number) (void)signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void FailStart(int error_pipe) {
  const int reason = errno;
  (void)!write(error_pipe, &reason, sizeof reason);
  _exit(kExecFailed);
}

// A thread that waits for the others of its loop spins before it sleeps. By default libgomp spins
// for milliseconds. If two ranks share their cores with other programs, nearly all their time is
// then spent spinning, and a step takes fourteen times as long as it needs. With this number it
// does not, and a step on free cores takes no longer than before. Settings of the user are kept.
void BoundTheSpinsOfBarriers() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "10000", 0);
}

// Runs in the child between fork and exec. The process has one thread, so everything is allowed.
[[noreturn]] void BecomeTrainer(const run_dir::RunDir& dir, const std::string& trainer,
                                const run_dir::RankAssignment& rank, pid_t group, pid_t supervisor,
                                int log, int null, int gate, int error_pipe) {
  if (setpgid(0, group) != 0) FailStart(error_pipe);
  // If the supervisor is killed, the ranks are killed too. If that happened before this line, no
  // signal is sent any more, so the parent is checked.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) FailStart(error_pipe);
  if (getppid() != supervisor) _exit(kExecFailed);
  // If only ancestors may trace a process, programs that the supervisor starts may do so after
  // this.
  (void)prctl(PR_SET_PTRACER, supervisor);
  RestoreSignals();
  BindToCpus(rank.cpus);
  if (dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
      dup2(log, STDERR_FILENO) < 0) {
    FailStart(error_pipe);
  }
  const std::string rank_text = absl::StrCat(rank.rank);
  setenv("TRAINYARD_RUN_DIR", dir.root().c_str(), 1);
  // The program of a user finds another folder in the variable above. By this one its processes are
  // known as those of the attempt.
  setenv("TRAINYARD_ATTEMPT_DIR", dir.root().c_str(), 1);
  setenv("TRAINYARD_RANK", rank_text.c_str(), 1);
  setenv("OMP_NUM_THREADS", absl::StrCat(rank.threads).c_str(), 1);
  BoundTheSpinsOfBarriers();
  char byte = 0;
  while (read(gate, &byte, 1) < 0 && errno == EINTR) {
  }
  execl(trainer.c_str(), trainer.c_str(), "--run_dir", dir.root().c_str(), "--rank",
        rank_text.c_str(), static_cast<char*>(nullptr));
  FailStart(error_pipe);
}

}  // namespace

absl::StatusOr<RankGroup> RankGroup::Start(const run_dir::RunDir& dir, const std::string& trainer,
                                           const std::vector<run_dir::RankAssignment>& ranks,
                                           const std::string& cgroup) {
  RankGroup group;
  group.trainer_ = trainer;
  group.cgroup_ = cgroup;
  TY_ASSIGN_OR_RETURN(Pipe gate, MakePipe());
  group.gate_ = std::move(gate.write);
  for (const run_dir::RankAssignment& rank : ranks) {
    const absl::Status started = group.StartRank(dir, trainer, rank, gate.read.get());
    if (!started.ok()) {
      group.KillAndReap();
      return Annotate(started, absl::StrCat("rank ", rank.rank, " cannot be started"));
    }
  }
  return group;
}

absl::Status RankGroup::StartRank(const run_dir::RunDir& dir, const std::string& trainer,
                                  const run_dir::RankAssignment& rank, int gate) {
  TY_RETURN_IF_ERROR(dir.CreateRankDirectory(rank.rank));
  TY_ASSIGN_OR_RETURN(const UniqueFd log,
                      OpenFile(dir.LogPath(rank.rank), O_WRONLY | O_CREAT | O_APPEND));
  TY_ASSIGN_OR_RETURN(const UniqueFd null, OpenFile("/dev/null", O_RDONLY));
  TY_ASSIGN_OR_RETURN(Pipe error, MakePipe());
  const pid_t supervisor = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot fork for", trainer);
  if (pid == 0) {
    // The write end in this child would keep the gate shut forever.
    gate_ = UniqueFd();
    BecomeTrainer(dir, trainer, rank, group_, supervisor, log.get(), null.get(), gate,
                  error.write.get());
  }
  // Both sides set the group, so that it exists whichever runs first.
  (void)setpgid(pid, group_ == 0 ? pid : group_);
  if (group_ == 0) group_ = pid;
  members_.push_back({rank.rank, pid, std::move(error.read)});
  // It waits at the gate, so it has started nothing yet that would stay behind.
  return cgroup_.empty() ? absl::OkStatus() : GroupOf(rank.rank).Take(pid);
}

void RankGroup::KillAndReap() {
  for (const Member& member : members_) {
    (void)kill(member.pid, SIGKILL);
    while (waitpid(member.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  members_.clear();
}

void RankGroup::Release() {
  gate_ = UniqueFd();
}

run_dir::SupervisorRecord RankGroup::Record() const {
  run_dir::SupervisorRecord record;
  record.process_group = group_;
  for (const Member& member : members_) {
    const auto info = ReadProcess(member.pid);
    record.ranks.push_back({member.rank, member.pid, info.ok() ? info->start_ticks : 0});
  }
  return record;
}

int RankGroup::RankOf(pid_t pid) const {
  for (const Member& member : members_) {
    if (member.pid == pid) return member.rank;
  }
  return -1;
}

pid_t RankGroup::PidOf(int rank) const {
  for (const Member& member : members_) {
    if (member.rank == rank) return member.pid;
  }
  return 0;
}

absl::Status RankGroup::StartError(int rank) const {
  for (const Member& member : members_) {
    if (member.rank != rank) continue;
    int reason = 0;
    // A successful exec closes the pipe without a message.
    if (read(member.error.get(), &reason, sizeof reason) == static_cast<ssize_t>(sizeof reason)) {
      return ErrnoStatus(reason, "cannot execute", trainer_);
    }
  }
  return absl::OkStatus();
}

cgroup::Group RankGroup::GroupOf(int rank) const {
  return cgroup::Group(cgroup_).Child(run_dir::RankGroupName(rank));
}

std::string RankGroup::OutOfMemory(int rank) const {
  if (cgroup_.empty()) return "";
  const auto use = cgroup::ReadMemoryUse(GroupOf(rank));
  return use.ok() && use->kills > 0 ? cgroup::OutOfMemoryText(*use) : "";
}

void RankGroup::Signal(SignalToSend signal) const {
  if (signal == SignalToSend::kNone) return;
  if (signal == SignalToSend::kKill && !cgroup_.empty()) {
    for (const Member& member : members_) (void)GroupOf(member.rank).Kill();
  }
  const int number = signal == SignalToSend::kTerm ? SIGTERM : SIGKILL;
  bool group_lives = false;
  for (const ProcessInfo& process : DescendantsOf(getpid(), ListProcesses())) {
    if (process.group == group_) {
      group_lives = true;
    } else {
      (void)kill(static_cast<pid_t>(process.pid), number);
      (void)kill(static_cast<pid_t>(process.pid), SIGCONT);
    }
  }
  // A signal is sent only while members are known to live, because the number of an empty group may
  // be reused.
  if (!group_lives) return;
  (void)kill(-group_, number);
  (void)kill(-group_, SIGCONT);
}

}  // namespace trainyard::supervisor
