// Where everything lies in a run directory: the folder through which worker, supervisor and ranks
// of one attempt talk. docs/run_directory.md is the format; the encoders and decoders of this
// folder follow it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::run_dir {

// Names only; touches no file but in CreateRankDirectory. Thread-safe.
class RunDir {
 public:
  explicit RunDir(std::string root);

  const std::string& root() const { return root_; }

  std::string AssignmentPath() const;         // assignment.json
  std::string LeasePath() const;              // lease
  std::string SupervisorPath() const;         // supervisor.json
  std::string SupervisorLogPath() const;      // supervisor.log
  std::string ExitPath() const;               // exit.json
  std::string ControlDir() const;             // control
  std::string CheckpointRequestPath() const;  // control/checkpoint
  std::string StopRequestPath() const;        // control/stop
  std::string RendezvousDir() const;          // rendezvous
  std::string CheckpointsDir() const;         // checkpoints

  std::string RankDir(int rank) const;      // ranks/<r>
  std::string LogPath(int rank) const;      // ranks/<r>/log
  std::string MetricsPath(int rank) const;  // ranks/<r>/metrics.jsonl
  // ranks/<r>/device_metrics.jsonl
  std::string DeviceMetricsPath(int rank) const;
  std::string TracePath(int rank) const;     // ranks/<r>/trace.jsonl
  std::string ProgressPath(int rank) const;  // ranks/<r>/progress.json
  std::string ResultPath(int rank) const;    // ranks/<r>/result.json
  std::string RankExitPath(int rank) const;  // ranks/<r>/exit.json

  // `path` itself where it is absolute or empty, else the path under the run directory.
  std::string Resolve(absl::string_view path) const;

  // ranks/<r> and its parents.
  absl::Status CreateRankDirectory(int rank) const;

 private:
  std::string root_;
};

// `<state_dir>/attempts/<job>/<attempt>`.
std::string AttemptDirectory(absl::string_view state_dir, int64_t job, int64_t attempt);

// The name of a file that is being written ("progress.json.tmp.4711"): readers pass over it.
bool IsTemporaryName(absl::string_view name);

}  // namespace trainyard::run_dir
