// The files between which a program's metrics go: its metrics.jsonl, and that of the rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "worker/run_dir/tail.h"

namespace trainyard::program {

// Follows the lines of metrics.jsonl. A program may empty the file or put another one in its place;
// it is then read from its beginning. The class is not thread-safe.
class MetricsTail {
 public:
  // The bytes that are read at a time.
  static constexpr int64_t kChunkBytes = int64_t{1} << 20;

  explicit MetricsTail(std::string path) : path_(std::move(path)) {}

  // Returns the next whole lines, or nothing if there are none yet. A line that is longer than a
  // chunk comes in pieces. The rest of a file that was replaced is read first, and then the new
  // one.
  absl::StatusOr<std::string> Read(run_dir::TailEnd end);
  // Returns what its user should know, for the log of the rank.
  std::vector<std::string> TakeTroubles();

 private:
  // Opens the file that has the name now, if another one was open.
  absl::Status Reopen();

  const std::string path_;
  UniqueFd file_;
  int64_t offset_ = 0;
  bool is_refused_ = false;
  std::vector<std::string> troubles_;
};

// Appends points to the rank's metrics. While the disk is full they wait, and nothing more is read
// of the program's file, which keeps them. The class is not thread-safe.
class PointsFile {
 public:
  absl::Status Open(const std::string& path);
  // Takes whole lines, which Flush writes.
  void Add(absl::string_view lines) { pending_.append(lines.data(), lines.size()); }
  // Writes what was added. Returns false if it could not be written yet; the file ends with a whole
  // line all the same.
  bool Flush();
  // Returns what its user should know, for the log of the rank.
  std::vector<std::string> TakeTroubles();

 private:
  std::string path_;
  UniqueFd file_;
  std::string pending_;
  bool is_failing_ = false;
  std::vector<std::string> troubles_;
};

}  // namespace trainyard::program
