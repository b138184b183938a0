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
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/full_disk.h"
#include "common/base/isolation.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/program/checkpoint_intake.h"
#include "worker/program/child.h"
#include "worker/program/command.h"
#include "worker/program/container.h"
#include "worker/program/environment_probe.h"
#include "worker/program/idle_signs.h"
#include "worker/program/idle_watch.h"
#include "worker/program/image_probe.h"
#include "worker/program/isolate.h"
#include "worker/program/meeting.h"
#include "worker/program/metrics_taker.h"
#include "worker/program/output_pipe.h"
#include "worker/program/program_spec.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/outputs.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/secrets.h"
#include "worker/run_dir/tail.h"

namespace trainyard::program {
namespace {

using run_dir::Outcome;
using run_dir::RankResult;

constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
constexpr absl::Duration kProgressInterval = absl::Seconds(1);
constexpr absl::Duration kMeetTimeout = absl::Minutes(10);
constexpr int64_t kLastLinesBytes = 4096;
// The server keeps 256 MiB of a log, and has to be offered more to say in the log that it is full.
constexpr int64_t kOutputBytesMax = int64_t{257} << 20;
constexpr size_t kLastLineMax = 300;
// A program that is stopped because it is idle has this long to end.
constexpr absl::Duration kIdleGrace = absl::Seconds(10);

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
        metrics_(rank, JoinPath(own_folder_, "metrics.jsonl")) {}

  // Returns the exit code.
  int Run();

 private:
  absl::Status Read();
  absl::Status CatchSignals();
  // Makes the rank's own files.
  absl::Status MakeFiles();
  // A host that was restarted has lost what was in its memory.
  absl::Status CheckSecrets() const;
  bool HasCacheOfWorker() const;
  absl::StatusOr<Child> Start(const Place& place);
  int FollowLeader();
  // Waits for the end of the program, and does what is due meanwhile.
  Child::End Watch(Child& child);
  void TakeSignals();
  void Look();
  void TakeMetrics(run_dir::TailEnd end);
  void TakeCheckpoints();
  void PassOnRequests();
  // Stops a program that has done nothing for too long. Returns true if it has not ended in time.
  bool LookWhetherIdle(const Child& child);
  void WriteProgress(run_dir::Progress::State state);
  int Finish(const RankResult& result, int exit_code);
  RankResult ResultOf(const Child::End& end) const;
  std::string LastLine() const;
  ImageQuestion QuestionAboutImage() const;
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
  bool is_stopping_ = false;
  std::unique_ptr<OutputPipe> output_;  // of the program, once it was started
  MetricsTaker metrics_;
  std::optional<CheckpointIntake> checkpoints_;
  int64_t request_passed_on_ = 0;
  int64_t request_answered_ = 0;
  run_dir::Progress progress_;
  absl::Duration progress_due_;
  // Only rank 0 watches, for all ranks of its host.
  std::optional<IdleWatch> idle_;
  absl::Duration idle_look_due_;
  std::string idle_text_;  // says for how long it was idle, once it is stopped for that
  absl::Duration idle_end_;
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
  if (spec_.has_code) files.code = dir_.CodeDir();
  files.resume_from = dir_.Resolve(assignment_.resume_from);
  if (!spec_.secrets.empty()) files.secrets = run_dir::SecretsFolder(dir_);
  if (!spec_.dataset.empty()) {
    files.data = JoinPath(assignment_.dataset_dir,
                          spec_.data_path.empty() ? spec_.dataset : spec_.data_path);
  }
  return files;
}

absl::Status Runner::CheckSecrets() const {
  const std::string folder = run_dir::SecretsFolder(dir_);
  for (const std::string& name : spec_.secrets) {
    if (!folder.empty() && FileExists(JoinPath(folder, name))) continue;
    return absl::NotFoundError(absl::StrCat("the secret '", name, "' is not in ",
                                            run_dir::SecretsPath(dir_),
                                            ", where the worker puts it"));
  }
  return absl::OkStatus();
}

absl::Status Runner::MakeFiles() {
  TY_RETURN_IF_ERROR(CheckSecrets());
  const Files files = FilesOfRank();
  for (const std::string& folder : {own_folder_, files.work, files.checkpoints}) {
    TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  }
  TY_RETURN_IF_ERROR(ReplaceFile(files.params, ParamsJson(spec_.params), 0600));
  if (!spec_.script.empty()) {
    TY_RETURN_IF_ERROR(
        ReplaceFile(JoinPath(own_folder_, "script"), ScriptText(spec_.script), 0700));
  }
  TY_RETURN_IF_ERROR(metrics_.Open(dir_.MetricsPath(rank_)));
  if (rank_ == 0) checkpoints_.emplace(files.checkpoints, dir_.CheckpointsDir());
  return absl::OkStatus();
}

// The folder for caches of our trainers is in the state directory. What a program keeps belongs
// into its owner's home, where other programs of the same user find it.
bool Runner::HasCacheOfWorker() const {
  const auto attempts = std::filesystem::path(dir_.root()).parent_path().parent_path();
  return absl::StartsWith(around_.cache, attempts.parent_path().string() + "/") &&
         access(around_.home.c_str(), W_OK) == 0 && spec_.container.empty();
}

absl::StatusOr<Child> Runner::Start(const Place& place) {
  const Files files = FilesOfRank();
  const run_dir::RankAssignment& own = *assignment_.FindRank(rank_);
  Variables variables =
      ProgramVariables(spec_, assignment_, own, place, files, around_.path, around_.home);
  if (HasCacheOfWorker()) variables.emplace("XDG_CACHE_HOME", std::nullopt);
  SetVariables(variables);
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
  const std::string start = StartFolder(spec_, files, around_.home);
  if (rank_ == 0 && !spec_.outputs.empty()) {
    TY_RETURN_IF_ERROR(run_dir::WriteOutputsPlan(dir_, {start, spec_.outputs}));
  }
  // Ranks may share the folder in which they start, and each event is taken once.
  if (rank_ == 0 && !spec_.tensorboard.empty()) {
    metrics_.FollowEvents(JoinPath(start, spec_.tensorboard));
  }
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                      IsolatedWords({spec_, assignment_, own, files, variables, dir_.root(), start,
                                     around_.home, around_.cache},
                                    CommandWords(spec_, JoinPath(own_folder_, "script"),
                                                 JoinPath(own_folder_, "ready"))));
  TY_ASSIGN_OR_RETURN(output_, OutputPipe::Start(STDOUT_FILENO, kOutputBytesMax));
  return Child::Start(words, start, output_->fd());
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
  for (const std::string& said : metrics_.Take(end, absl::ToUnixMicros(clock_.Now()))) Say(said);
}

void Runner::TakeCheckpoints() {
  if (!checkpoints_.has_value() || checkpoints_->Take(metrics_.intake().step()) == 0) return;
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
  progress_.step = metrics_.intake().step();
  progress_.total_steps = metrics_.intake().total_steps();
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

bool Runner::LookWhetherIdle(const Child& child) {
  const absl::Duration now = clock_.Uptime();
  if (!idle_text_.empty()) return now >= idle_end_;
  if (!idle_.has_value() || now < idle_look_due_ || is_stopping_) return false;
  idle_look_due_ = now + idle_->interval();
  if (!idle_->Look(ReadSigns(dir_, assignment_), now)) return false;
  idle_text_ = DurationText(idle_->idle());
  idle_end_ = now + kIdleGrace;
  Say(absl::StrCat("the program has been idle for ", idle_text_, " and is stopped"));
  child.Stop();
  return false;
}

ImageQuestion Runner::QuestionAboutImage() const {
  if (assignment_.isolation.level != run_dir::IsolationLevel::kContainer) return {};
  const std::string start = StartFolder(spec_, FilesOfRank(), around_.home);
  return QuestionAbout(assignment_.isolation, ImageOf(spec_.container, start, around_.home));
}

Child::End Runner::Watch(Child& child) {
  EnvironmentProbe probe(dir_.EnvironmentPath(rank_), clock_, QuestionAboutImage());
  while (true) {
    if (rank_ == 0) probe.Look(child.pid());
    pollfd fds[] = {{child.fd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    (void)poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(kLookInterval)));
    TakeSignals();
    const std::optional<Child::End> end = child.Poll();
    if (end.has_value()) {
      if (rank_ == 0) probe.Finish();
      return *end;
    }
    Look();
    if (LookWhetherIdle(child)) return {.signal = SIGKILL};
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
  result.step = metrics_.intake().step();
  result.metrics = metrics_.intake().last();
  if (!idle_text_.empty() && !is_stopping_) {
    result.outcome = Outcome::kUserError;
    result.reason = kReasonIdle;
    result.message = absl::StrCat("the program was idle for ", idle_text_,
                                  ": it used no processor to speak of, printed nothing, wrote no "
                                  "metric, and nobody was connected to it");
    return result;
  }
  const bool is_well = end.signal == 0 && end.exit_code == 0;
  // A program that ends because it was asked to says so with 0 too, so only its steps tell whether
  // it was done.
  const bool is_done = metrics_.intake().total_steps() > 0 &&
                       metrics_.intake().step() >= metrics_.intake().total_steps();
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
  if (!HasBegun(assignment_.isolation, own_folder_, end.exit_code)) {
    result = Failure(Outcome::kTransient, error::kIsolationFailed,
                     absl::StrCat("the ", run_dir::IsolationName(assignment_.isolation.level),
                                  " could not be made: ", last));
  } else if (!is_prepared) {
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
    // A host that lacks something may have it next time; all else is wrong in the spec.
    const bool is_hosts = IsDiskFull(child.status()) || absl::IsResourceExhausted(child.status());
    return Finish(Failure(is_hosts ? Outcome::kTransient : Outcome::kUserError, kReasonNotStarted,
                          std::string(child.status().message())),
                  is_hosts ? run_dir::kExitTransient : run_dir::kExitUserError);
  }
  WriteProgress(run_dir::Progress::State::kRunning);
  if (rank_ == 0 && spec_.idle_limit > absl::ZeroDuration()) idle_.emplace(spec_.idle_limit);
  const Child::End end = Watch(*child);
  if (const int64_t lost = output_->Finish(); lost > 0) {
    Say(absl::StrCat(FormatBytes(lost), " of what the program printed could not be written here"));
  }
  TakeSignals();
  Look();
  TakeMetrics(run_dir::TailEnd::kFinished);
  TakeCheckpoints();
  if (!idle_text_.empty()) return Finish(ResultOf(end), run_dir::kExitUserError);
  return Finish(ResultOf(end), end.signal != 0 ? 128 + end.signal : end.exit_code);
}

}  // namespace

int RunRank(const run_dir::RunDir& dir, int rank, const Surroundings& around, Clock& clock) {
  return Runner(dir, rank, around, clock).Run();
}

}  // namespace trainyard::program
