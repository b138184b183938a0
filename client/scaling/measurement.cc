// Takes medians over the steps after the warm-up, because single steps are often disturbed.
#include "client/scaling/measurement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace trainyard::scaling {
namespace {

// Single losses vary a lot; the mean over this many steps varies less.
constexpr size_t kFinalSteps = 10;

double MedianAfter(const Series& series, const std::string& name, int64_t step) {
  const auto found = series.find(name);
  if (found == series.end()) return 0;
  std::vector<double> values;
  std::vector<double> all;
  for (const Sample& sample : found->second) {
    if (!std::isfinite(sample.value)) continue;
    all.push_back(sample.value);
    if (sample.step > step) values.push_back(sample.value);
  }
  // A run with fast steps reports several of them in one point, so a short run may have no point
  // after the warm-up.
  return Median(values.empty() ? std::move(all) : std::move(values));
}

// Returns the values of the metric `name`, by step.
std::map<int64_t, double> ByStep(const Series& series, const std::string& name) {
  std::map<int64_t, double> values;
  const auto found = series.find(name);
  if (found == series.end()) return values;
  for (const Sample& sample : found->second) values[sample.step] = sample.value;
  return values;
}

double LinkSpeed(const Series& series) {
  const std::map<int64_t, double> bytes = ByStep(series, "comm.bytes");
  std::vector<double> speeds;
  for (const auto& [step, seconds] : ByStep(series, "comm.seconds")) {
    const auto sent = bytes.find(step);
    const bool is_told = sent != bytes.end() && seconds > 0 && sent->second > 0;
    if (is_told && std::isfinite(sent->second / seconds)) speeds.push_back(sent->second / seconds);
  }
  if (speeds.empty()) return 0;
  std::sort(speeds.begin(), speeds.end());
  return speeds[(speeds.size() - 1) * 9 / 10];
}

}  // namespace

int64_t WarmUpSteps(int64_t steps) {
  return std::clamp<int64_t>(steps / 5, 3, 50);
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

absl::StatusOr<Measurement> Measure(int devices, int64_t steps, const Series& series) {
  Measurement result;
  result.devices = devices;
  const int64_t warm_up = WarmUpSteps(steps);
  const auto losses = series.find("train.loss");
  std::vector<double> gaps;
  if (losses != series.end()) {
    for (size_t i = 1; i < losses->second.size(); ++i) {
      const Sample& before = losses->second[i - 1];
      const Sample& after = losses->second[i];
      // A restart in between leaves out steps, or adds a pause, which the median ignores.
      if (before.step <= warm_up || after.step != before.step + 1) continue;
      gaps.push_back(after.seconds - before.seconds);
    }
  }
  if (gaps.size() < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("a run of ", steps, " steps on ", devices, " devices has ", gaps.size(),
                     " steps to measure after ", warm_up, " of warm-up; use more steps"));
  }
  std::sort(gaps.begin(), gaps.end());
  const size_t quarter = gaps.size() / 4;
  const double spread = gaps[gaps.size() - 1 - quarter] - gaps[quarter];
  result.step_seconds = Median(std::move(gaps));
  if (result.step_seconds > 0) result.step_spread = spread / result.step_seconds;
  result.step_seconds_of_runs = {result.step_seconds};
  result.compute_seconds = MedianAfter(series, "compute.seconds", warm_up);
  result.comm_seconds = MedianAfter(series, "comm.seconds", warm_up);
  result.exposed_seconds = MedianAfter(series, "comm.exposed_seconds", warm_up);
  result.comm_bytes = MedianAfter(series, "comm.bytes", warm_up);
  result.link_bytes_per_s = LinkSpeed(series);
  const std::vector<Sample>& all = losses->second;
  const size_t count = std::min(kFinalSteps, all.size());
  for (size_t i = all.size() - count; i < all.size(); ++i) result.final_loss += all[i].value;
  result.final_loss /= static_cast<double>(count);
  return result;
}

Measurement Combine(const std::vector<Measurement>& runs) {
  Measurement result = runs.front();
  const auto median = [&runs](double Measurement::*field) {
    std::vector<double> values;
    values.reserve(runs.size());
    for (const Measurement& run : runs) values.push_back(run.*field);
    return Median(std::move(values));
  };
  result.jobs.clear();
  result.step_seconds_of_runs.clear();
  for (const Measurement& run : runs) {
    result.jobs.insert(result.jobs.end(), run.jobs.begin(), run.jobs.end());
    result.step_seconds_of_runs.push_back(run.step_seconds);
  }
  for (const auto field :
       {&Measurement::step_seconds, &Measurement::step_spread, &Measurement::compute_seconds,
        &Measurement::comm_seconds, &Measurement::exposed_seconds, &Measurement::comm_bytes,
        &Measurement::link_bytes_per_s}) {
    result.*field = median(field);
  }
  return result;
}

bool Agree(const Measurement& a, const Measurement& b, bool is_bitwise, double tolerance) {
  if (is_bitwise) return !a.weights.empty() && a.weights == b.weights;
  return std::abs(a.final_loss - b.final_loss) <= tolerance * std::abs(a.final_loss);
}

}  // namespace trainyard::scaling
