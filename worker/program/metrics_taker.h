// Takes over all that a program tells about its training: metrics.jsonl, and event files for
// TensorBoard.
#pragma once

#include <sys/types.h>

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
  MetricsTaker(int rank, const std::string& path) : intake_(rank), path_(path), tail_(path) {}

  // Opens the metrics of the rank, to which everything goes.
  absl::Status Open(const std::string& path) { return points_.Open(path); }
  // Follows event files from now on.
  void FollowEvents(const std::string& folder) { events_.emplace(folder); }

  // Takes what has come since the last call. Returns what its user should know, for the log of the
  // rank. At the end, processes that the program has left behind may still write; what is not there
  // at the beginning of that call is not taken, so that it comes to an end.
  std::vector<std::string> Take(run_dir::TailEnd end, int64_t now_us);

  const MetricsIntake& intake() const { return intake_; }

 private:
  void TakeLines(run_dir::TailEnd end, int64_t now_us);
  void TakeEvents(bool is_last);
  // Notes which file has the name now.
  void NoteFile();
  // Returns how many bytes there are to be taken, at most.
  int64_t BytesLeft() const;

  MetricsIntake intake_;
  const std::string path_;
  MetricsTail tail_;
  PointsFile points_;
  std::optional<EventFolder> events_;
  int looks_ = 0;
  ino_t file_ = 0;           // that has the name; 0 if there was none
  int64_t taken_bytes_ = 0;  // of all files that had the name
  bool is_one_file_ = true;  // false if it was replaced or cut off
};

}  // namespace trainyard::program
