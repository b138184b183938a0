// Computes the speed of a finished run from its metrics, by pure functions.
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
// The samples by the name of their metric, in ascending steps.
using Series = std::map<std::string, std::vector<Sample>>;

// The measurement of one number of devices. Times and bytes are those of one step: medians over the
// steps after the warm-up.
struct Measurement {
  int devices = 0;
  std::vector<std::string> jobs = {};
  double step_seconds = 0;  // the median of several runs
  std::vector<double> step_seconds_of_runs = {};
  // The difference between the slowest and the fastest step, without a quarter of them at either
  // end, as a share of the median.
  double step_spread = 0;
  double compute_seconds = 0;  // 0 if not reported, here and in the fields below
  double comm_seconds = 0;
  double exposed_seconds = 0;
  double comm_bytes = 0;
  // The bandwidth of the link while no rank waited for another, as the fastest tenth of the steps
  // reached it.
  double link_bytes_per_s = 0;
  double final_loss = 0;     // the mean over the last steps
  std::string weights = {};  // the hash of the last checkpoint's weights
};

// Returns the number of steps that are left out at the beginning: a fifth, at least 3 and at most
// 50.
int64_t WarmUpSteps(int64_t steps);

// Returns the median, or 0 if there are no values.
double Median(std::vector<double> values);

// Measures one run. Returns FAILED_PRECONDITION if it has too few steps.
absl::StatusOr<Measurement> Measure(int devices, int64_t steps, const Series& series);

// Combines several runs of the same spec into medians. Loss and weights are those of the first run.
// `runs` is not empty.
Measurement Combine(const std::vector<Measurement>& runs);

// Returns true if two runs came to the same result. If `is_bitwise`, they must have the same bytes;
// otherwise their final losses may differ by at most `tolerance` of the first.
bool Agree(const Measurement& a, const Measurement& b, bool is_bitwise, double tolerance);

}  // namespace trainyard::scaling
