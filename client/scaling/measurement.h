// What the metrics of a finished run say about its speed. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::scaling {

// A point of a metric.
struct Sample {
  int64_t step = 0;
  double value = 0;
  double seconds = 0;  // when it was taken, since 1970
};
// By name; ascending steps.
using Series = std::map<std::string, std::vector<Sample>>;

// One number of devices. Times and bytes are those of one step: medians after the warm-up.
struct Measurement {
  int devices = 0;
  std::vector<std::string> jobs = {};
  double step_seconds = 0;  // of several runs: the median
  std::vector<double> step_seconds_of_runs = {};
  double compute_seconds = 0;  // 0: not reported; so for the others
  double comm_seconds = 0;
  double exposed_seconds = 0;
  double comm_bytes = 0;
  // The speed of the line where nobody was waited for, as the fastest tenth of the steps reached
  // it.
  double link_bytes_per_s = 0;
  double final_loss = 0;     // mean over the last steps
  std::string weights = {};  // hash of the last checkpoint's weights
};

// Steps that are left out at the beginning: a fifth, at least 3 and at most 50.
int64_t WarmUpSteps(int64_t steps);

// The median; 0 for none.
double Median(std::vector<double> values);

// One run. FAILED_PRECONDITION where it has too few steps.
absl::StatusOr<Measurement> Measure(int devices, int64_t steps, const Series& series);

// Several runs of the same: medians; loss and weights are those of the first. `runs`: not empty.
Measurement Combine(const std::vector<Measurement>& runs);

// Returns true if two runs came to the same end: the same bytes where `is_bitwise`; else final
// losses that differ by no more than `tolerance` of the first.
bool Agree(const Measurement& a, const Measurement& b, bool is_bitwise, double tolerance);

}  // namespace trainyard::scaling
