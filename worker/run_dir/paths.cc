// Names the files and folders as docs/run_directory.md lists them.
#include "worker/run_dir/paths.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard::run_dir {

RunDir::RunDir(std::string root) : root_(std::move(root)) {}

std::string RunDir::AssignmentPath() const {
  return JoinPath(root_, "assignment.json");
}
std::string RunDir::LeasePath() const {
  return JoinPath(root_, "lease");
}
std::string RunDir::SupervisorPath() const {
  return JoinPath(root_, "supervisor.json");
}
std::string RunDir::SupervisorLogPath() const {
  return JoinPath(root_, "supervisor.log");
}
std::string RunDir::ExitPath() const {
  return JoinPath(root_, "exit.json");
}
std::string RunDir::ControlDir() const {
  return JoinPath(root_, "control");
}
std::string RunDir::CheckpointRequestPath() const {
  return JoinPath(root_, "control/checkpoint");
}
std::string RunDir::StopRequestPath() const {
  return JoinPath(root_, "control/stop");
}
std::string RunDir::RendezvousDir() const {
  return JoinPath(root_, "rendezvous");
}
std::string RunDir::OutputsPath() const {
  return JoinPath(root_, "outputs.json");
}

std::string RunDir::CheckpointsDir() const {
  return JoinPath(root_, "checkpoints");
}
std::string RunDir::CodeDir() const {
  return JoinPath(root_, "code");
}

std::string RunDir::RankDir(int rank) const {
  return JoinPath(root_, absl::StrCat("ranks/", rank));
}
std::string RunDir::LogPath(int rank) const {
  return JoinPath(RankDir(rank), "log");
}
std::string RunDir::DeviceMetricsPath(int rank) const {
  return JoinPath(RankDir(rank), "device_metrics.jsonl");
}

std::string RunDir::TracePath(int rank) const {
  return JoinPath(RankDir(rank), "trace.jsonl");
}
std::string RunDir::EnvironmentPath(int rank) const {
  return JoinPath(RankDir(rank), "environment.json");
}

std::string RunDir::MetricsPath(int rank) const {
  return JoinPath(RankDir(rank), "metrics.jsonl");
}
std::string RunDir::ProgressPath(int rank) const {
  return JoinPath(RankDir(rank), "progress.json");
}
std::string RunDir::ResultPath(int rank) const {
  return JoinPath(RankDir(rank), "result.json");
}
std::string RunDir::RankExitPath(int rank) const {
  return JoinPath(RankDir(rank), "exit.json");
}

std::string RunDir::Resolve(absl::string_view path) const {
  return path.empty() ? std::string() : JoinPath(root_, path);
}

absl::Status RunDir::CreateRankDirectory(int rank) const {
  return MakeDirectories(RankDir(rank));
}

std::string AttemptDirectory(absl::string_view state_dir, int64_t job, int64_t attempt) {
  return JoinPath(state_dir, absl::StrCat("attempts/", job, "/", attempt));
}

bool IsTemporaryName(absl::string_view name) {
  constexpr absl::string_view kMark = ".tmp.";
  const size_t at = name.rfind(kMark);
  if (at == absl::string_view::npos) return false;
  const absl::string_view pid = name.substr(at + kMark.size());
  return !pid.empty() && std::all_of(pid.begin(), pid.end(), absl::ascii_isdigit);
}

}  // namespace trainyard::run_dir
