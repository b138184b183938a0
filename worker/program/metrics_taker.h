// Takes over all that a program tells about its training: metrics.jsonl, and event files for
// TensorBoard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/event_folder.h"
#include "worker/program/metrics_files.h"
#include "worker/program/metrics_intake.h"
#include "worker/run_dir/tail.h"

namespace trainyard::program {

// The metrics of one rank. It is not thread-safe.
class MetricsTaker {
 public:
  // `path` is that of the program's metrics.jsonl.
  MetricsTaker(int rank, std::string path) : intake_(rank), tail_(std::move(path)) {}

  // Opens the metrics of the rank, to which everything goes.
  absl::Status Open(const std::string& path) { return points_.Open(path); }
  // Follows event files from now on.
  void FollowEvents(const std::string& folder) { events_.emplace(folder); }

  // Takes what has come since the last call. Returns what its user should know, for the log of the
  // rank.
  std::vector<std::string> Take(run_dir::TailEnd end, int64_t now_us);

  const MetricsIntake& intake() const { return intake_; }

 private:
  void TakeLines(run_dir::TailEnd end, int64_t now_us);
  void TakeEvents(bool is_last);

  MetricsIntake intake_;
  MetricsTail tail_;
  PointsFile points_;
  std::optional<EventFolder> events_;
  int looks_ = 0;
};

}  // namespace trainyard::program
