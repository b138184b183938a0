// Watches the program by polling a few files; nothing here takes noticeable time.
#include "worker/program/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/program/checkpoint_intake.h"
#include "worker/program/child.h"
#include "worker/program/command.h"
#include "worker/program/meeting.h"
#include "worker/program/metrics_intake.h"
#include "worker/program/program_spec.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/tail.h"

namespace trainyard::program {
namespace {

using run_dir::Outcome;
using run_dir::RankResult;

constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
constexpr absl::Duration kProgressInterval = absl::Seconds(1);
constexpr absl::Duration kMeetTimeout = absl::Minutes(10);
constexpr int64_t kMetricsChunk = int64_t{4} << 20;
constexpr int64_t kLastLinesBytes = 4096;
constexpr size_t kLastLineMax = 300;

// Writes into the log of the rank, where its user looks.
void Say(const std::string& text) {
  std::fprintf(stderr, "trainyard: %s\n", text.c_str());
}

RankResult Failure(Outcome outcome, const char* reason, std::string message) {
  return {.outcome = outcome, .reason = reason, .message = std::move(message)};
}

class Runner {
 public:
  Runner(run_dir::RunDir dir, int rank, const Surroundings& around, Clock& clock)
      : dir_(std::move(dir)),
        rank_(rank),
        around_(around),
        clock_(clock),
        own_folder_(JoinPath(dir_.RankDir(rank), "program")),
        metrics_(rank) {}

  // Returns the exit code.
  int Run();

 private:
  absl::Status Read();
  absl::Status CatchSignals();
  // Makes the rank's own files.
  absl::Status MakeFiles();
  absl::StatusOr<Child> Start(const Place& place);
  int FollowLeader();
  // Waits for the end of the program, and does what is due meanwhile.
  Child::End Watch(Child& child);
  void TakeSignals();
  void Look();
  void TakeMetrics(run_dir::TailEnd end);
  void TakeCheckpoints();
  void PassOnRequests();
  void WriteProgress(run_dir::Progress::State state);
  int Finish(const RankResult& result, int exit_code);
  RankResult ResultOf(const Child::End& end) const;
  std::string LastLine() const;
  Files FilesOfRank() const;
  std::string CheckpointFolder() const;
  // The first rank of this host stands for all of them, if the program has a process for each host.
  bool IsLeader() const { return !spec_.is_per_host || assignment_.ranks.front().rank == rank_; }

  const run_dir::RunDir dir_;
  const int rank_;
  const Surroundings& around_;
  Clock& clock_;
  const std::string own_folder_;
  run_dir::Assignment assignment_;
  ProgramSpec spec_;
  UniqueFd signals_;
  UniqueFd points_;
  bool is_stopping_ = false;
  MetricsIntake metrics_;
  int64_t metrics_offset_ = 0;
  std::optional<CheckpointIntake> checkpoints_;
  int64_t request_passed_on_ = 0;
  int64_t request_answered_ = 0;
  run_dir::Progress progress_;
  absl::Duration progress_due_;
};

absl::Status Runner::Read() {
  TY_ASSIGN_OR_RETURN(assignment_, run_dir::ReadAssignment(dir_));
  if (assignment_.FindRank(rank_) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("assignment.json has no rank ", rank_));
  }
  TY_ASSIGN_OR_RETURN(spec_, ReadProgramSpec(assignment_.spec_json, dir_.AssignmentPath()));
  return absl::OkStatus();
}

absl::Status Runner::CatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, number);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) {
    return ErrnoStatus(errno, "cannot block", "signals");
  }
  signals_ = UniqueFd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_.valid()) return ErrnoStatus(errno, "cannot create", "signalfd");
  return absl::OkStatus();
}

std::string Runner::CheckpointFolder() const {
  // Rank 0 may be on another host. What the others write is theirs alone.
  const int writer = assignment_.FindRank(0) != nullptr ? 0 : rank_;
  return JoinPath(JoinPath(dir_.RankDir(writer), "program"), "checkpoints");
}

Files Runner::FilesOfRank() const {
  Files files;
  files.folder = own_folder_;
  files.params = JoinPath(own_folder_, "params.json");
  files.work = JoinPath(own_folder_, "work");
  files.checkpoints = CheckpointFolder();
  files.resume_from = dir_.Resolve(assignment_.resume_from);
  if (!spec_.dataset.empty()) {
    files.data = JoinPath(assignment_.dataset_dir,
                          spec_.data_path.empty() ? spec_.dataset : spec_.data_path);
  }
  return files;
}

absl::Status Runner::MakeFiles() {
  const Files files = FilesOfRank();
  for (const std::string& folder : {own_folder_, files.work, files.checkpoints}) {
    TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  }
  TY_RETURN_IF_ERROR(ReplaceFile(files.params, ParamsJson(spec_.params), 0600));
  if (!spec_.script.empty()) {
    TY_RETURN_IF_ERROR(
        ReplaceFile(JoinPath(own_folder_, "script"), ScriptText(spec_.script), 0700));
  }
  TY_ASSIGN_OR_RETURN(
      points_, OpenRegularFile(dir_.MetricsPath(rank_), O_WRONLY | O_CREAT | O_APPEND, 0600));
  if (rank_ == 0) checkpoints_.emplace(files.checkpoints, dir_.CheckpointsDir());
  return absl::OkStatus();
}

absl::StatusOr<Child> Runner::Start(const Place& place) {
  const Files files = FilesOfRank();
  SetVariables(ProgramVariables(spec_, assignment_, *assignment_.FindRank(rank_), place, files,
                                around_.path, around_.home));
  if (!spec_.venv.empty()) {
    const std::string python = JoinPath(Expanded(spec_.venv, around_.home), "bin/python");
    if (access(python.c_str(), X_OK) != 0) {
      return absl::NotFoundError(absl::StrCat("there is no Python environment in '", spec_.venv,
                                              "' on this host: ", python, " is missing"));
    }
  }
  if (spec_.is_per_host) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (const run_dir::RankAssignment& rank : assignment_.ranks) {
      for (const int64_t cpu : rank.cpus) CPU_SET(static_cast<size_t>(cpu), &cpus);
    }
    if (CPU_COUNT(&cpus) > 0) (void)sched_setaffinity(0, sizeof(cpus), &cpus);
  }
  return Child::Start(
      CommandWords(spec_, JoinPath(own_folder_, "script"), JoinPath(own_folder_, "ready")),
      spec_.directory.empty() ? files.work : Expanded(spec_.directory, around_.home));
}

void Runner::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGUSR1) {
      ++request_passed_on_;
      (void)ReplaceFile(JoinPath(own_folder_, "checkpoint_requested"),
                        absl::StrCat(request_passed_on_, "\n"));
      continue;
    }
    if (is_stopping_) continue;
    is_stopping_ = true;
    // The program got the signal too, since it is in the same process group.
    (void)ReplaceFile(JoinPath(own_folder_, "stop_requested"), "");
  }
}

void Runner::TakeMetrics(run_dir::TailEnd end) {
  const std::string path = JoinPath(own_folder_, "metrics.jsonl");
  while (true) {
    const auto chunk = run_dir::ReadWholeLines(path, metrics_offset_, kMetricsChunk, end);
    if (!chunk.ok() || chunk->next_offset == metrics_offset_) return;
    metrics_offset_ = chunk->next_offset;
    std::string points;
    metrics_.Take(chunk->text, absl::ToUnixMicros(clock_.Now()), points);
    if (!points.empty()) {
      const absl::Status written = WriteFully(points_.get(), points, dir_.MetricsPath(rank_));
      if (!written.ok()) Say(absl::StrCat("metrics are lost: ", written.message()));
    }
    for (const std::string& mistake : metrics_.TakeMistakes()) {
      Say(absl::StrCat(mistake, ", and is left out; further lines of that kind are left out too"));
    }
  }
}

void Runner::TakeCheckpoints() {
  if (!checkpoints_.has_value() || checkpoints_->Take(metrics_.step()) == 0) return;
  request_answered_ = request_passed_on_;
  progress_due_ = absl::ZeroDuration();
}

void Runner::PassOnRequests() {
  if (!checkpoints_.has_value()) return;
  const auto request = run_dir::ReadCheckpointRequest(dir_);
  if (!request.ok() || *request <= request_passed_on_) return;
  request_passed_on_ = *request;
  (void)ReplaceFile(JoinPath(own_folder_, "checkpoint_requested"), absl::StrCat(*request, "\n"));
}

void Runner::WriteProgress(run_dir::Progress::State state) {
  progress_.state = state;
  progress_.step = metrics_.step();
  progress_.total_steps = metrics_.total_steps();
  progress_.checkpoint_request = request_answered_;
  if (checkpoints_.has_value()) progress_.last_checkpoint_step = checkpoints_->last_step();
  progress_.update_time_us = absl::ToUnixMicros(clock_.Now());
  (void)run_dir::WriteProgress(dir_, rank_, progress_);
  progress_due_ = clock_.Uptime() + kProgressInterval;
}

void Runner::Look() {
  TakeMetrics(run_dir::TailEnd::kGrowing);
  PassOnRequests();
  TakeCheckpoints();
  if (checkpoints_.has_value()) {
    for (const std::string& mistake : checkpoints_->TakeMistakes()) Say(mistake);
  }
  if (clock_.Uptime() >= progress_due_) WriteProgress(run_dir::Progress::State::kRunning);
}

Child::End Runner::Watch(Child& child) {
  while (true) {
    pollfd fds[] = {{child.fd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    (void)poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(kLookInterval)));
    TakeSignals();
    const std::optional<Child::End> end = child.Poll();
    if (end.has_value()) return *end;
    Look();
  }
}

// Returns the last line that the program has printed and that says something.
std::string Runner::LastLine() const {
  const std::string path = dir_.LogPath(rank_);
  const auto size = FileSize(path);
  if (!size.ok()) return "";
  const int64_t begin = std::max<int64_t>(0, *size - kLastLinesBytes);
  const auto text = ReadRegularFileRange(path, begin, *size - begin);
  if (!text.ok()) return "";
  std::string last;
  for (const absl::string_view line : absl::StrSplit(*text, absl::ByAnyChar("\r\n"))) {
    const absl::string_view said = absl::StripAsciiWhitespace(line);
    if (!said.empty()) last = std::string(said.substr(0, kLastLineMax));
  }
  return last;
}

RankResult Runner::ResultOf(const Child::End& end) const {
  RankResult result;
  result.step = metrics_.step();
  result.metrics = metrics_.last();
  const bool is_well = end.signal == 0 && end.exit_code == 0;
  // A program that ends because it was asked to says so with 0 too, so only its steps tell whether
  // it was done.
  const bool is_done = metrics_.total_steps() > 0 && metrics_.step() >= metrics_.total_steps();
  if (is_stopping_ && !(is_well && is_done)) {
    result.outcome = Outcome::kStopped;
    return result;
  }
  if (is_well) return result;
  const std::string last = LastLine();
  const std::string how = end.signal != 0 ? absl::StrCat("was killed by signal ", end.signal)
                                          : absl::StrCat("exited with code ", end.exit_code);
  result.message = absl::StrCat("the program ", how, last.empty() ? "" : absl::StrCat(": ", last));
  result.reason = kReasonFailed;
  const bool is_prepared = !HasPreparation(spec_) || FileExists(JoinPath(own_folder_, "ready"));
  // Somebody else has sent the signal, and a rank on another host may be lost. That may pass.
  const bool may_pass = end.signal != 0 || end.exit_code == kExitTryAgain ||
                        static_cast<int>(assignment_.ranks.size()) < assignment_.world_size;
  result.outcome = may_pass ? Outcome::kTransient : Outcome::kUserError;
  if (!is_prepared) {
    result.reason = kReasonPreparation;
    result.message = absl::StrCat("what prepares the environment ", how,
                                  last.empty() ? "" : absl::StrCat(": ", last));
    result.outcome = Outcome::kUserError;
  }
  return result;
}

int Runner::Finish(const RankResult& result, int exit_code) {
  WriteProgress(run_dir::Progress::State::kFinished);
  const absl::Status written = run_dir::WriteRankResult(dir_, rank_, result);
  if (!written.ok()) Say(std::string(written.message()));
  return exit_code;
}

int Runner::FollowLeader() {
  const int leader = assignment_.ranks.front().rank;
  while (true) {
    const auto result = run_dir::ReadRankResult(dir_, leader);
    if (result.ok()) {
      const bool is_well = result->outcome == Outcome::kSucceeded;
      return is_well ? Finish({}, 0) : run_dir::kExitStopped;
    }
    pollfd fds[] = {{signals_.get(), POLLIN, 0}};
    (void)poll(fds, 1, static_cast<int>(absl::ToInt64Milliseconds(kLookInterval)));
    TakeSignals();
    if (clock_.Uptime() >= progress_due_) WriteProgress(run_dir::Progress::State::kRunning);
  }
}

int Runner::Run() {
  absl::Status ready = Read();
  if (ready.ok()) ready = CatchSignals();
  if (ready.ok() && !IsLeader()) return FollowLeader();
  if (ready.ok()) ready = MakeFiles();
  if (!ready.ok()) {
    return Finish(Failure(Outcome::kTransient, kReasonNotStarted, std::string(ready.message())),
                  run_dir::kExitTransient);
  }
  WriteProgress(run_dir::Progress::State::kStarting);
  const auto is_stopped = [this] {
    TakeSignals();
    return is_stopping_;
  };
  const auto meeting =
      Meet(dir_, assignment_, rank_, spec_.is_per_host, kMeetTimeout, clock_, is_stopped);
  if (absl::IsCancelled(meeting.status())) {
    return Finish({.outcome = Outcome::kStopped}, run_dir::kExitStopped);
  }
  if (!meeting.ok()) {
    return Finish(
        Failure(Outcome::kTransient, kReasonNoMeeting, std::string(meeting.status().message())),
        run_dir::kExitTransient);
  }
  absl::StatusOr<Child> child = Start(meeting->place);
  if (!child.ok()) {
    Say(std::string(child.status().message()));
    return Finish(
        Failure(Outcome::kUserError, kReasonNotStarted, std::string(child.status().message())),
        run_dir::kExitUserError);
  }
  WriteProgress(run_dir::Progress::State::kRunning);
  const Child::End end = Watch(*child);
  TakeSignals();
  Look();
  TakeMetrics(run_dir::TailEnd::kFinished);
  TakeCheckpoints();
  return Finish(ResultOf(end), end.signal != 0 ? 128 + end.signal : end.exit_code);
}

}  // namespace

int RunRank(const run_dir::RunDir& dir, int rank, const Surroundings& around, Clock& clock) {
  return Runner(dir, rank, around, clock).Run();
}

}  // namespace trainyard::program
