// Takes over the metrics that a program writes: lines of JSON in its metrics.jsonl, which become
// points of its rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/run_dir/metrics.h"

namespace trainyard::program {

// Reads lines such as
//
//   {"step": 1, "name": "loss", "value": 0.5}
//   {"step": 1, "metrics": {"loss": 0.5, "accuracy": 0.8}, "time": 1790000000.5}
//   {"total_steps": 1000}
//
// `step` stays what it was if it is left out, and `time`, in seconds since 1970, is now. Values are
// numbers, true or false, or NaN and infinities as Python and JavaScript write them. The class is
// pure and not thread-safe.
class MetricsIntake {
 public:
  // A line that is longer is not taken over.
  static constexpr size_t kLineBytesMax = size_t{1} << 20;

  // The points of ranks after the first have the rank in their names, "loss.rank1".
  explicit MetricsIntake(int rank) : rank_(rank) {}

  // Takes whole lines, and appends their points in the form of the run directory. `now_us` is the
  // time of lines that have none.
  void Take(absl::string_view lines, int64_t now_us, std::string& points);

  // Takes a point that has come in another way. Its step counts as one of the training.
  void Add(const run_dir::MetricPoint& point, std::string& points);

  int64_t step() const { return step_; }
  int64_t total_steps() const { return total_steps_; }
  bool has_points() const { return has_points_; }
  const std::map<std::string, double>& last() const { return last_; }
  // Returns what is wrong with lines that were not taken over, for the log of the rank: each kind
  // of mistake once, with the number of its first line.
  std::vector<std::string> TakeMistakes();
  int64_t refused_lines() const { return refused_lines_; }

 private:
  void TakeLine(absl::string_view line, int64_t now_us, std::string& points);
  // Adds a point whose name lacks the rank.
  void AddPoint(int64_t step, const std::string& name, double value, int64_t time_us,
                std::string& points);
  void Refuse(const std::string& what);

  const int rank_;
  int64_t lines_ = 0;
  int64_t refused_lines_ = 0;
  int64_t step_ = 0;
  int64_t total_steps_ = 0;
  bool has_points_ = false;
  std::map<std::string, double> last_;
  std::map<std::string, bool> known_mistakes_;
  std::vector<std::string> mistakes_;
};

// Returns the line with NaN, Infinity and -Infinity, which JSON lacks, as texts.
std::string WithNumbersAsTexts(absl::string_view line);

}  // namespace trainyard::program
