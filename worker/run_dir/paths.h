// Says where everything lies in a run directory, the folder through which worker, supervisor and
// ranks of one attempt communicate. docs/run_directory.md describes the format; the encoders and
// decoders of this folder follow it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainyard::run_dir {

// Makes names. Only CreateRankDirectory touches files. It is thread-safe.
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
  std::string OutputsPath() const;            // outputs.json
  std::string CodeDir() const;                // code

  std::string RankDir(int rank) const;      // ranks/<r>
  std::string LogPath(int rank) const;      // ranks/<r>/log
  std::string MetricsPath(int rank) const;  // ranks/<r>/metrics.jsonl
  // ranks/<r>/device_metrics.jsonl
  std::string DeviceMetricsPath(int rank) const;
  std::string TracePath(int rank) const;  // ranks/<r>/trace.jsonl
  // ranks/<r>/environment.json
  std::string EnvironmentPath(int rank) const;
  std::string ProgressPath(int rank) const;  // ranks/<r>/progress.json
  std::string ResultPath(int rank) const;    // ranks/<r>/result.json
  std::string RankExitPath(int rank) const;  // ranks/<r>/exit.json

  // Returns `path` itself if it is absolute or empty, else the path under the run directory.
  std::string Resolve(absl::string_view path) const;

  // Creates ranks/<r> and its parents.
  absl::Status CreateRankDirectory(int rank) const;

 private:
  std::string root_;
};

// Returns `<state_dir>/attempts/<job>/<attempt>`.
std::string AttemptDirectory(absl::string_view state_dir, int64_t job, int64_t attempt);

// Returns true for the name of a file that is being written ("progress.json.tmp.4711"), which
// readers ignore.
bool IsTemporaryName(absl::string_view name);

}  // namespace trainyard::run_dir
