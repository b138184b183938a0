// One timeline out of those of the ranks, in the format that browsers show (Chrome trace events).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::output {

// Not thread-safe.
class Timeline {
 public:
  // Events of one rank, one JSON object a line. What is no event is passed over and counted; a last
  // line without its newline was still being written.
  void Add(int rank, absl::string_view lines);

  // {"displayTimeUnit": "ms", "otherData": {...}, "traceEvents": [...]}: a rank is a process there,
  // called `names[rank]` where that is given.
  std::string Json(const std::map<int, std::string>& names,
                   const std::vector<std::pair<std::string, std::string>>& facts) const;

  size_t event_count() const { return event_count_; }
  int64_t skipped() const { return skipped_; }
  // Ranks with events; different values of args.step.
  size_t rank_count() const { return ranks_.size(); }
  size_t step_count() const { return steps_.size(); }
  // Share of the time with communication (spans of category "comm" and "wait") in which the
  // training did not wait for it (category "wait"), over all ranks. None without communication.
  std::optional<double> HiddenFraction() const;

 private:
  struct Span {
    double begin = 0;
    double end = 0;
  };
  struct Rank {
    std::vector<Span> communication;
    std::vector<Span> waits;
  };
  static double LengthOf(std::vector<Span> spans);
  bool AddEvent(int rank, absl::string_view line);

  std::string events_;  // JSON texts with commas between them
  size_t event_count_ = 0;
  int64_t skipped_ = 0;
  std::map<int, Rank> ranks_;
  std::set<int64_t> steps_;
};

}  // namespace trainyard::output
