// Merges the timelines of ranks into one, in the format that browsers show (Chrome trace events).
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

// Collects the events of ranks. The class is not thread-safe.
class Timeline {
 public:
  // Adds the events of one rank, one JSON object a line. Lines that are no events are skipped and
  // counted. A last line without a newline is incomplete and ignored.
  void Add(int rank, absl::string_view lines);

  // Returns {"displayTimeUnit": "ms", "otherData": {...}, "traceEvents": [...]}. Each rank is a
  // process in it, with the name `names[rank]` if there is one.
  std::string Json(const std::map<int, std::string>& names,
                   const std::vector<std::pair<std::string, std::string>>& facts) const;

  size_t event_count() const { return event_count_; }
  int64_t skipped() const { return skipped_; }
  // Returns the number of ranks that have events, and the number of different values of args.step.
  size_t rank_count() const { return ranks_.size(); }
  size_t step_count() const { return steps_.size(); }
  // Returns the share of the communication time (spans of category "comm" and "wait") in which the
  // training did not wait (category "wait"), over all ranks. Returns nothing if there was no
  // communication.
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

  std::string events_;  // JSON texts, separated by commas
  size_t event_count_ = 0;
  int64_t skipped_ = 0;
  std::map<int, Rank> ranks_;
  std::set<int64_t> steps_;
};

}  // namespace trainyard::output
