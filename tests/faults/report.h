// Rows of the table of faults that Trainyard survives, in docs/reliability.md. Each test of this
// folder injects one fault and makes one row, which says what was injected, what was expected, and
// what was counted.
//
//   TEST(Kills, AtEveryWriteOfASubmission) {
//     FaultRow row({.fault = "SIGKILL of the server at a system call",
//                   .injection = "at the N-th write of a submission",
//                   .expectation = "every acknowledged job is there once"});
//     for (int n = 1; n <= Scaled(5, 500); ++n) ...
//     row.Count("kills", kills);
//     row.Count("lost", 0);
//     row.Survived();
//   }
//
// A row is added to `rows.jsonl` of the folder that TRAINYARD_FAULTS_OUT names, if it is set, when
// the row is destroyed: as failed if the test has failed or did not come to Survived, and as
// skipped with the reason if the test was skipped. scripts/fault_table.py makes the table of it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::testing {

class FaultRow {
 public:
  // Texts of one line, as the table shows them. No two rows have the same fault and injection.
  struct Description {
    std::string fault;
    std::string injection;
    std::string expectation;
  };

  explicit FaultRow(Description description) : description_(std::move(description)) {}
  ~FaultRow();
  FaultRow(const FaultRow&) = delete;
  FaultRow& operator=(const FaultRow&) = delete;

  // Adds to the evidence, which keeps the order of the first calls: "54 kills, 0 lost". A further
  // call with the same name adds to the number.
  void Count(absl::string_view name, int64_t count);
  // Adds to the evidence: "slowest restart 230 ms". Of several calls with the same name, the
  // longest time stays.
  void Longest(absl::string_view name, absl::Duration time);
  // Says that the test came to its end.
  void Survived() { has_survived_ = true; }

 private:
  const Description description_;
  std::vector<std::pair<std::string, int64_t>> counts_;
  std::vector<std::pair<std::string, absl::Duration>> times_;
  bool has_survived_ = false;
};

// Returns true in the long lane: TRAINYARD_FAULTS=long, which `make faults` sets.
bool IsLongLane();
// Returns the count for this lane.
inline int Scaled(int short_lane, int long_lane) {
  return IsLongLane() ? long_lane : short_lane;
}

// Skips a test that is too long for the short lane, which has 30 seconds for all rows.
#define LONG_LANE_ONLY()                       \
  if (!::trainyard::testing::IsLongLane()) {   \
    GTEST_SKIP() << "`make faults` runs this"; \
  }

}  // namespace trainyard::testing
