// Reads and writes run directories, and starts, reaps and cleans up after supervisors. What is on
// disk is the truth; this file decides nothing.
#include "worker/agent/file_run_dirs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/interfaces.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/agent/act_as.h"
#include "worker/agent/convert.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/rendezvous.h"
#include "worker/run_dir/supervisor_lock.h"

namespace trainyard::agent {
namespace {

constexpr absl::Duration kSweepDelay = absl::Seconds(30);
// The time between two questions whether a missing account is there now. The database may be on the
// network.
constexpr absl::Duration kReviewInterval = absl::Seconds(30);
// Each refusal is part of every report.
constexpr size_t kRefusedUsersMax = 100;
// A supervisor that has written the end of its attempt has nothing left to do but to exit.
constexpr absl::Duration kSupervisorEndWait = absl::Seconds(2);
// Owners pass through these folders to their own, and cannot list them.
constexpr mode_t kPassageMode = 0711;

// Makes a folder below one that is ours alone, so that nobody else can put something in its place
// before the second call.
absl::Status MakeFolder(const std::string& path, mode_t mode, const FileOwner& owner) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "cannot create directory", path);
  }
  // The process's umask may have taken bits away.
  if (chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, "cannot change the mode of", path);
  if (!owner.is_self && lchown(path.c_str(), owner.uid, owner.gid) != 0) {
    return ErrnoStatus(errno, "cannot change the owner of", path);
  }
  return absl::OkStatus();
}

}  // namespace

FileRunDirs::FileRunDirs(HostSettings settings, std::vector<Device> devices,
                         CheckpointFetcher& fetcher, Clock& clock, FileWatch* watch)
    : settings_(std::move(settings)),
      devices_(std::move(devices)),
      fetcher_(fetcher),
      clock_(clock),
      watch_(watch),
      sweeper_(JoinPath(settings_.state_dir, "removed"), kSweepDelay, clock),
      secrets_(settings_.state_dir, sweeper_) {
  // The server knows from the beginning whether this host runs jobs of root, and takes none that
  // would wait for ever.
  if (settings_.run_as == RunAs::kOwner) (void)TakeAccount(AccountOf(geteuid(), getegid()).name);
}

run_dir::RunDir FileRunDirs::DirOf(AttemptId id) const {
  return run_dir::RunDir(run_dir::AttemptDirectory(settings_.state_dir, id.job.value, id.number));
}

FileOwner FileRunDirs::OwnerOf(AttemptId id) const {
  const auto found = accounts_.find(id);
  return found == accounts_.end() ? FileOwner{} : found->second.owner;
}

std::vector<Attempt> FileRunDirs::Adopt() {
  std::vector<Attempt> found = FindAttempts();
  std::set<AttemptId> kept;
  for (const Attempt& attempt : found) kept.insert(attempt.id);
  secrets_.RemoveAllBut(kept);
  return found;
}

std::vector<Attempt> FileRunDirs::FindAttempts() {
  std::vector<Attempt> found;
  const std::string root = JoinPath(settings_.state_dir, "attempts");
  const auto jobs = ListDirectory(root);
  if (!jobs.ok()) return found;
  for (const std::string& job : *jobs) {
    const auto numbers = ListDirectory(JoinPath(root, job));
    if (!numbers.ok()) continue;
    for (const std::string& number : *numbers) {
      AttemptId id;
      if (!absl::SimpleAtoi(job, &id.job.value) || !absl::SimpleAtoi(number, &id.number)) continue;
      struct stat info {};
      // The folder above is ours, so nobody else can have put a link there. A user cannot give a
      // folder away either, so its owner is the one for whom we made it.
      if (lstat(DirOf(id).root().c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
      accounts_[id] = AccountOf(info.st_uid, info.st_gid);
      Attempt& attempt = found.emplace_back();
      attempt.id = id;
      const ActAs as(OwnerOf(id));
      const auto assignment = run_dir::ReadAssignment(DirOf(id));
      if (assignment.ok()) {
        attempt.is_assigned = true;
        attempt.local.fencing_token = assignment->fencing_token;
        SetAssignment(attempt, *assignment);
      }
      Watch(attempt, assignment.ok() ? &*assignment : nullptr);
    }
  }
  if (settings_.groups != nullptr) {
    std::set<AttemptId> known;
    for (const Attempt& attempt : found) known.insert(attempt.id);
    settings_.groups->RemoveOthers(known);
  }
  return found;
}

void FileRunDirs::SetAssignment(Attempt& attempt, const run_dir::Assignment& assignment) {
  attempt.global_batch = GlobalBatch(assignment.spec_json);
  attempt.isolation = assignment.isolation.level;
  attempt.ranks.clear();
  std::vector<int64_t>& cpus = cpus_[attempt.id];
  cpus.clear();
  for (const run_dir::RankAssignment& rank : assignment.ranks) {
    attempt.ranks.push_back(
        {rank.rank, rank.device, static_cast<int64_t>(rank.cpus.size()), rank.host_memory_bytes});
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
  }
}

std::set<int64_t> FileRunDirs::TakenCpus(AttemptId id) const {
  std::set<int64_t> taken;
  for (const auto& [other, cpus] : cpus_) {
    if (other == id || cpus.empty() || FileExists(DirOf(other).ExitPath())) continue;
    taken.insert(cpus.begin(), cpus.end());
  }
  return taken;
}

run_dir::RankAssignment FileRunDirs::MakeRank(const DesiredRank& rank,
                                              std::set<int64_t>& taken) const {
  run_dir::RankAssignment item;
  item.rank = rank.rank;
  item.device_type = run_dir::kNoDevice;
  item.host_memory_bytes = rank.memory_bytes;
  std::vector<int64_t> preferred;
  if (!rank.device.empty()) {
    const auto device =
        std::find_if(devices_.begin(), devices_.end(),
                     [&rank](const Device& candidate) { return candidate.name == rank.device; });
    TY_CHECK(device != devices_.end());  // the daemon core has checked that
    item.device = device->name;
    item.device_type = device->type;
    item.cpus = device->cpus;
    item.threads = device->threads;
    item.memory_bytes = device->memory_bytes;
    preferred = device->type == "cpu" ? device->cpus : device->near_cpus;
  }
  if (rank.cpus == 0) return item;
  // The threads of a CPU device are part of what it is. Devices that share processors stay as they
  // are.
  const bool is_cpu = item.device_type == "cpu";
  if (!is_cpu) item.threads = static_cast<int>(rank.cpus);
  if (is_cpu && preferred.empty()) return item;
  std::vector<int64_t> chosen = ChooseCpus(settings_.host, preferred, taken, rank.cpus);
  if (chosen.empty()) return item;
  taken.insert(chosen.begin(), chosen.end());
  item.cpus = std::move(chosen);
  return item;
}

void FileRunDirs::Watch(Attempt& attempt, const run_dir::Assignment* assignment) {
  if (watch_ == nullptr) return;
  attempt.is_watched = true;
  const run_dir::RunDir dir = DirOf(attempt.id);
  std::vector<std::string> folders = {dir.root(), dir.CheckpointsDir()};
  if (assignment != nullptr) {
    if (assignment->world_size > 1) folders.push_back(dir.RendezvousDir());
    for (const auto& rank : assignment->ranks) folders.push_back(dir.RankDir(rank.rank));
  }
  for (const std::string& folder : folders) {
    const absl::StatusOr<int> number = watch_->Add(folder);
    if (number.ok()) {
      folders_[*number] = attempt.id;
    } else {
      attempt.is_watched = false;
    }
  }
}

RunDirs::Changes FileRunDirs::TakeChanges() {
  Changes changes;
  ReapSupervisors(changes);
  ReviewRefusals();
  if (watch_ == nullptr) return changes;
  const FileChanges files = watch_->Take();
  for (const int folder : files.folders) {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) continue;
    changes.changed.push_back(found->second);
    if (!FileExists(DirOf(found->second).root())) folders_.erase(found);
  }
  changes.any_lost = files.any_lost;
  return changes;
}

void FileRunDirs::ReapSupervisors(Changes& changes) {
  std::erase_if(supervisors_, [&changes](const auto& entry) {
    int status = 0;
    const pid_t ended = waitpid(entry.first, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    changes.changed.push_back(entry.second);
    if (ended > 0 && status != 0) {
      LogWarning("a supervisor ended badly",
                 {{"attempt", AttemptName(entry.second)}, {"status", absl::StrCat(status)}});
      changes.ended_early.push_back(entry.second);
    }
    return true;
  });
}

RunDirs::Sight FileRunDirs::Look(AttemptId id) {
  Sight sight = LookAsOwner(id);
  // Whatever has ended the attempt, its secrets have no use any more.
  if (sight.exit.has_value() && without_secrets_.insert(id).second) {
    secrets_.Remove(DirOf(id), id, OwnerOf(id));
  }
  return sight;
}

RunDirs::Sight FileRunDirs::LookAsOwner(AttemptId id) const {
  const run_dir::RunDir dir = DirOf(id);
  const ActAs as(OwnerOf(id));
  Sight sight;
  // We ask whether the supervisor lives before we look for the exit record, because one that ends
  // in between has written it.
  const auto supervised = run_dir::IsSupervised(dir);
  sight.is_supervised = !supervised.ok() || *supervised;
  if (FileExists(dir.ExitPath())) {
    if (auto exit = run_dir::ReadAttemptExit(dir); exit.ok()) {
      sight.exit = *std::move(exit);
    } else {
      sight.exit.emplace();
      sight.exit->outcome = run_dir::Outcome::kTransient;
      sight.exit->reason = ErrorReason(exit.status());
      sight.exit->message = std::string(exit.status().message());
    }
    return sight;
  }
  sight.has_supervisor_record = FileExists(dir.SupervisorPath());
  return sight;
}

void FileRunDirs::Read(Attempt& attempt) {
  const run_dir::RunDir dir = DirOf(attempt.id);
  const ActAs as(OwnerOf(attempt.id));
  LocalAttempt& local = attempt.local;
  if (const auto stop = run_dir::ReadStopRequest(dir); stop.ok()) local.stop = *stop;
  if (const auto lease = run_dir::ReadLease(dir); lease.ok()) {
    local.lease_expire = lease->expire_uptime;
  }
  if (const auto request = run_dir::ReadCheckpointRequest(dir); request.ok()) {
    local.checkpoint_request = *request;
  }
  if (const auto keys = run_dir::ListRendezvousKeys(dir); keys.ok()) {
    local.rendezvous = std::set<std::string>(keys->begin(), keys->end());
  }
  local.checkpoints = checkpoint::ListCheckpoints(dir.CheckpointsDir());
  for (const DesiredRank& rank : attempt.ranks) {
    auto progress = run_dir::ReadProgress(dir, rank.rank);
    if (progress.ok()) attempt.progress[rank.rank] = *std::move(progress);
  }
  if (local.phase == Phase::kExited && !attempt.ranks.empty()) {
    const auto result = run_dir::ReadRankResult(dir, attempt.ranks.front().rank);
    if (result.ok()) attempt.final_metrics = result->metrics;
  }
}

absl::StatusOr<std::string> FileRunDirs::RendezvousValue(AttemptId id, const std::string& key) {
  const ActAs as(OwnerOf(id));
  return run_dir::GetRendezvousKey(DirOf(id), key);
}

absl::StatusOr<Account> FileRunDirs::AccountFor(const std::string& user) const {
  const Account own = AccountOf(geteuid(), getegid());
  const std::string& name = user.empty() ? own.name : user;
  switch (settings_.run_as) {
    case RunAs::kAnyone:
      return own;
    case RunAs::kSelf:
      if (name == own.name) return own;
      return error::OwnerRefused(absl::StrCat("it runs jobs of ", own.name, " only"));
    case RunAs::kOwner:
      break;
  }
  TY_ASSIGN_OR_RETURN(Account account, FindAccount(name));
  // This daemon is root, so its own user is root under any name.
  if (account.owner.is_self && !settings_.runs_root_jobs) {
    return error::OwnerRefused("it runs no jobs of root unless it is started with --root_jobs");
  }
  return account;
}

absl::StatusOr<Account> FileRunDirs::TakeAccount(const std::string& user) {
  absl::StatusOr<Account> account = AccountFor(user);
  if (ErrorReason(account.status()) != error::kOwnerRefused) return account;
  const std::string why(account.status().message());
  if (refused_users_.size() == kRefusedUsersMax) refused_users_.erase(refused_users_.begin());
  refused_users_[user] = why;
  return error::OwnerRefused(absl::StrCat("worker ", settings_.worker, " does not run jobs of ",
                                          user.empty() ? "its own user" : user, ": ", why));
}

void FileRunDirs::ReviewRefusals() {
  if (refused_users_.empty() || clock_.Uptime() < review_due_) return;
  review_due_ = clock_.Uptime() + kReviewInterval;
  std::erase_if(refused_users_, [this](const auto& entry) { return AccountFor(entry.first).ok(); });
}

absl::Status FileRunDirs::MakeRoot(const run_dir::RunDir& dir, const FileOwner& owner) const {
  const std::string attempts = JoinPath(settings_.state_dir, "attempts");
  TY_RETURN_IF_ERROR(MakeDirectories(settings_.state_dir, 0700));
  TY_RETURN_IF_ERROR(MakeFolder(attempts, kPassageMode, FileOwner{}));
  const std::string job = dir.root().substr(0, dir.root().rfind('/'));
  TY_RETURN_IF_ERROR(MakeFolder(job, kPassageMode, FileOwner{}));
  return MakeFolder(dir.root(), 0700, owner);
}

absl::StatusOr<std::string> FileRunDirs::MakeCacheHome(const FileOwner& owner) const {
  const std::string caches = JoinPath(settings_.state_dir, "cache");
  TY_RETURN_IF_ERROR(MakeFolder(caches, kPassageMode, FileOwner{}));
  const std::string own = JoinPath(caches, absl::StrCat("uid-", owner.uid));
  TY_RETURN_IF_ERROR(MakeFolder(own, 0700, owner));
  return own;
}

absl::Status FileRunDirs::Prepare(AttemptId id, const DesiredAttempt& wanted) {
  const run_dir::RunDir dir = DirOf(id);
  TY_ASSIGN_OR_RETURN(const Account account, TakeAccount(wanted.owner));
  // A daemon that died may have left a folder here. It has no assignment yet, so nothing runs in
  // it.
  TY_RETURN_IF_ERROR(RemoveGroup(id));
  TY_RETURN_IF_ERROR(SweepRoot(id));
  TY_RETURN_IF_ERROR(MakeRoot(dir, account.owner));
  accounts_[id] = account;
  without_secrets_.erase(id);
  const ActAs as(account.owner);
  TY_RETURN_IF_ERROR(MakeDirectories(dir.ControlDir()));
  if (wanted.world_size > 1) TY_RETURN_IF_ERROR(MakeDirectories(dir.RendezvousDir()));
  TY_RETURN_IF_ERROR(MakeDirectories(dir.CheckpointsDir()));
  std::vector<int> ranks;
  for (const DesiredRank& rank : wanted.ranks) {
    TY_RETURN_IF_ERROR(dir.CreateRankDirectory(rank.rank));
    ranks.push_back(rank.rank);
  }
  TY_RETURN_IF_ERROR(run_dir::ReserveRecords(dir, ranks));
  if (wanted.resume_from.has_value() || wanted.init_from.has_value()) {
    TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(dir.root(), "resume")));
  }
  return absl::OkStatus();
}

std::string FileRunDirs::ResumeFolder(AttemptId id, const ResumeSource& source) const {
  return checkpoint::CheckpointPath(JoinPath(DirOf(id).root(), "resume"), source.step);
}

void FileRunDirs::Fetch(AttemptId id, const DesiredAttempt& wanted) {
  FetchPlan plan;
  plan.checkpoint = wanted.resume_from.has_value() ? wanted.resume_from : wanted.init_from;
  if (plan.checkpoint.has_value()) plan.checkpoint_folder = ResumeFolder(id, *plan.checkpoint);
  if (!wanted.code_digest.empty()) plan.code = CodeSource{JobName(id.job), wanted.code_digest};
  plan.code_folder = DirOf(id).CodeDir();
  plan.owner = OwnerOf(id);
  fetcher_.Begin(id, std::move(plan));
}

void FileRunDirs::FetchSecrets(AttemptId id, int64_t fencing_token) {
  fetcher_.Begin(id,
                 [this, id, fencing_token, dir = DirOf(id),
                  owner = OwnerOf(id)](CancelToken& token) -> absl::Status {
                   TY_ASSIGN_OR_RETURN(const Secrets secrets,
                                       ask_secrets_(id, fencing_token, token));
                   return secrets_.Write(dir, id, owner, secrets);
                 });
}

void FileRunDirs::CancelFetch(AttemptId id) {
  fetcher_.Cancel(id);
}

absl::StatusOr<run_dir::Assignment> FileRunDirs::MakeAssignment(
    AttemptId id, const DesiredAttempt& wanted) const {
  run_dir::Assignment assignment;
  assignment.job = id.job.value;
  assignment.attempt = id.number;
  assignment.fencing_token = wanted.fencing_token;
  assignment.world_size = wanted.world_size;
  assignment.interface = settings_.interface;
  if (wanted.spans_workers) {
    // The address is looked up for each attempt, because addresses change while a daemon runs.
    TY_ASSIGN_OR_RETURN(const InterfaceAddress here, FindInterface(settings_.address));
    assignment.interface = here.address;
  }
  TY_ASSIGN_OR_RETURN(assignment.isolation,
                      ChooseIsolation(settings_.isolation, wanted.isolation, wanted.has_image));
  if (settings_.groups != nullptr) assignment.isolation.cgroup = settings_.groups->PathOf(id);
  assignment.worker = settings_.worker;
  assignment.dataset_dir = settings_.dataset_dir;
  assignment.spec_json = wanted.spec_json;
  assignment.failures = wanted.failures;
  assignment.run_time = wanted.run_time;
  if (wanted.resume_from.has_value()) {
    assignment.resume_from = ResumeFolder(id, *wanted.resume_from);
  } else if (wanted.init_from.has_value()) {
    assignment.init_from = ResumeFolder(id, *wanted.init_from);
  }
  const auto backend_of = [&wanted](const std::string& type) {
    if (wanted.runs_program) return run_dir::kProgramBackend;
    return type == "cpu" ? "cpu" : "cuda";
  };
  std::set<int64_t> taken = TakenCpus(id);
  for (const DesiredRank& rank : wanted.ranks) {
    run_dir::RankAssignment item = MakeRank(rank, taken);
    item.local_rank = static_cast<int>(assignment.ranks.size());
    assignment.backend = backend_of(item.device_type);
    assignment.ranks.push_back(std::move(item));
  }
  return assignment;
}

absl::Status FileRunDirs::Assign(Attempt& attempt, const DesiredAttempt& wanted,
                                 absl::Duration lease_expire) {
  const run_dir::RunDir dir = DirOf(attempt.id);
  TY_ASSIGN_OR_RETURN(const run_dir::Assignment assignment, MakeAssignment(attempt.id, wanted));
  if (settings_.groups != nullptr) {
    TY_RETURN_IF_ERROR(settings_.groups->Make(attempt.id, assignment.ranks, wanted.is_per_host,
                                              OwnerOf(attempt.id)));
  }
  const ActAs as(OwnerOf(attempt.id));
  TY_RETURN_IF_ERROR(run_dir::WriteLease(dir, {lease_expire}));
  TY_RETURN_IF_ERROR(run_dir::WriteAssignment(dir, assignment));
  SetAssignment(attempt, assignment);
  Watch(attempt, &assignment);
  return absl::OkStatus();
}

absl::Status FileRunDirs::Launch(const Attempt& attempt) {
  const run_dir::RunDir dir = DirOf(attempt.id);
  const FileOwner owner = OwnerOf(attempt.id);
  const absl::StatusOr<run_dir::Assignment> assignment = [&] {
    const ActAs as(owner);
    return run_dir::ReadAssignment(dir);
  }();
  TY_RETURN_IF_ERROR(assignment.status());
  std::string cgroup;
  if (!assignment->isolation.cgroup.empty()) {
    // The owner could have written the path in the file, so it is not taken from there.
    if (settings_.groups == nullptr || !settings_.groups->Has(attempt.id)) {
      return absl::UnavailableError("the attempt's control group is gone");
    }
    cgroup = JoinPath(settings_.groups->PathOf(attempt.id), run_dir::kSupervisorGroup);
  }
  absl::StatusOr<pid_t> supervisor = 0;
  if (settings_.run_as == RunAs::kOwner || !owner.is_self) {
    TY_ASSIGN_OR_RETURN(const std::string cache_home, MakeCacheHome(owner));
    supervisor = LaunchSupervisorAs(accounts_.at(attempt.id), settings_.programs, dir,
                                    assignment->backend, cache_home, cgroup);
  } else {
    supervisor = LaunchSupervisor(settings_.programs, dir, assignment->backend);
  }
  TY_RETURN_IF_ERROR(supervisor.status());
  supervisors_[*supervisor] = attempt.id;
  return absl::OkStatus();
}

absl::Status FileRunDirs::RecordUnstarted(AttemptId id, const absl::Status& cause) {
  const run_dir::RunDir dir = DirOf(id);
  if (!absl::IsUnavailable(cause)) return agent::RecordUnstarted(dir, OwnerOf(id), cause, clock_);
  const std::string message = absl::StrCat(cause.message(), "; see ", dir.SupervisorLogPath());
  return agent::RecordUnstarted(dir, OwnerOf(id), absl::UnavailableError(message), clock_);
}

absl::Status FileRunDirs::RemoveGroup(AttemptId id) const {
  return settings_.groups == nullptr ? absl::OkStatus() : settings_.groups->Remove(id);
}

absl::Status FileRunDirs::RecordDeath(AttemptId id) {
  // Everything in the group is of this attempt, whatever its environment says.
  if (settings_.groups != nullptr) TY_RETURN_IF_ERROR(settings_.groups->Kill(id));
  return agent::RecordDeath(DirOf(id), OwnerOf(id), clock_);
}

absl::Status FileRunDirs::RequestStop(AttemptId id, const run_dir::StopRequest& stop) {
  const ActAs as(OwnerOf(id));
  return run_dir::RequestStop(DirOf(id), stop);
}

absl::Status FileRunDirs::RenewLease(AttemptId id, absl::Duration expire) {
  const ActAs as(OwnerOf(id));
  return run_dir::WriteLease(DirOf(id), {expire});
}

absl::Status FileRunDirs::Publish(AttemptId id, const std::string& key, const std::string& value) {
  const ActAs as(OwnerOf(id));
  return run_dir::SetRendezvousKey(DirOf(id), key, value);
}

absl::Status FileRunDirs::AskCheckpoint(AttemptId id, int64_t number) {
  const ActAs as(OwnerOf(id));
  return run_dir::RequestCheckpoint(DirOf(id), number);
}

absl::Status FileRunDirs::PruneCheckpoint(AttemptId id, int64_t step) {
  const FileOwner owner = OwnerOf(id);
  const std::string path = DirOf(id).CheckpointsDir();
  const UniqueFd folder(open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!folder.valid() || fstat(folder.get(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "cannot open", path);
  }
  // Only this daemon may move something into the bin, so it does not act as the owner. What it
  // moves comes from a folder of the owner, whatever has the path of that folder by now.
  if (!owner.is_self && info.st_uid != owner.uid) {
    return error::CorruptFile(path, "it does not belong to the owner of the job");
  }
  const std::string opened = absl::StrCat("/proc/self/fd/", folder.get());
  return sweeper_.MoveAway(checkpoint::CheckpointPath(opened, step),
                           absl::StrCat(BinName(id), ".checkpoint.", step));
}

std::string FileRunDirs::BinName(AttemptId id) const {
  return absl::StrCat(id.job.value, ".", id.number, ".", absl::ToUnixNanos(clock_.Now()));
}

void FileRunDirs::Discard(AttemptId id) {
  if (const absl::Status removed = RemoveGroup(id); !removed.ok()) {
    LogWarning("a control group cannot be removed", {{"error", std::string(removed.message())}});
  }
  secrets_.Remove(DirOf(id), id, OwnerOf(id));
  if (const absl::Status removed = SweepRoot(id); !removed.ok()) {
    LogWarning("a run directory cannot be removed", {{"error", std::string(removed.message())}});
  }
  Forget(id);
}

absl::Status FileRunDirs::SweepRoot(AttemptId id) {
  return sweeper_.Remove(DirOf(id).root(), BinName(id));
}

void FileRunDirs::Forget(AttemptId id) {
  accounts_.erase(id);
  cpus_.erase(id);
  without_secrets_.erase(id);
  removal_due_.erase(id);
}

bool FileRunDirs::AwaitsSupervisor(AttemptId id) {
  const bool is_child = std::any_of(supervisors_.begin(), supervisors_.end(),
                                    [id](const auto& entry) { return entry.second == id; });
  const absl::StatusOr<bool> is_supervised = [&] {
    const ActAs as(OwnerOf(id));
    return run_dir::IsSupervised(DirOf(id));
  }();
  if (!is_child && !is_supervised.value_or(false)) return false;
  const absl::Duration now = clock_.Uptime();
  // Its owner may have stopped it, or hold the lock, for ever.
  return now < removal_due_.try_emplace(id, now + kSupervisorEndWait).first->second;
}

absl::Status FileRunDirs::Remove(AttemptId id) {
  const std::string root = DirOf(id).root();
  // It writes exit.json before it exits, and would look like one that was left behind.
  if (AwaitsSupervisor(id)) return absl::UnavailableError("the supervisor is still ending");
  TY_RETURN_IF_ERROR(RemoveGroup(id));
  if (const FileOwner owner = OwnerOf(id); !owner.is_self) EndProcesses(DirOf(id), owner);
  secrets_.Remove(DirOf(id), id, OwnerOf(id));
  TY_RETURN_IF_ERROR(SweepRoot(id));
  Forget(id);
  // The job's folder is removed with its last attempt.
  (void)rmdir(root.substr(0, root.rfind('/')).c_str());
  return absl::OkStatus();
}

}  // namespace trainyard::agent
