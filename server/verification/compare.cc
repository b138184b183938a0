// Compares checkpoints, then metrics, then outputs.
#include "server/verification/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/verification/causes.h"

namespace trainyard::verification {
namespace {

constexpr absl::string_view kWeightsFile = "model.safetensors";
constexpr double kInfinite = std::numeric_limits<double>::infinity();
// The metrics that are named one by one in the reasons.
constexpr size_t kNamedMax = 3;

bool IsSame(double left, double right) {
  return left == right || (std::isnan(left) && std::isnan(right));
}

std::string Percent(double part) {
  return std::isfinite(part) ? absl::StrFormat("%.3g%%", 100 * part) : "without bound";
}

// The evidence that files give: unset if there are none to compare.
struct FileEvidence {
  bool is_same = false;
  std::string sentence;
};

// Compares the weights, or all files of a checkpoint that has no file of weights: only its program
// knows what they hold.
std::optional<FileEvidence> CompareCheckpoints(const RunRecord& first, const RunRecord& second) {
  if (first.checkpoint.empty() || second.checkpoint.empty() ||
      first.checkpoint_step != second.checkpoint_step) {
    return std::nullopt;
  }
  const std::string at = absl::StrCat(" of the checkpoints at step ", first.checkpoint_step);
  const auto left = first.checkpoint.find(std::string(kWeightsFile));
  const auto right = second.checkpoint.find(std::string(kWeightsFile));
  const bool has_weights = left != first.checkpoint.end() && right != second.checkpoint.end();
  const bool is_same =
      has_weights ? left->second == right->second : first.checkpoint == second.checkpoint;
  return FileEvidence{is_same, absl::StrCat(has_weights ? "the weights" : "the files", at,
                                            is_same ? " are the same, byte for byte" : " differ")};
}

// The result of all metrics, and what to say about them.
struct MetricEvidence {
  std::vector<v1::MetricComparison> compared;
  std::vector<std::string> only_in_one;  // sentences
  bool are_same = true;
  double largest = 0;  // difference
};

MetricEvidence CompareMetrics(const RunRecord& first, const RunRecord& second) {
  MetricEvidence evidence;
  const auto tell_alone = [&](const RunRecord& run, const std::string& name) {
    evidence.only_in_one.push_back(absl::StrCat("only ", run.job, " has values of ", name));
  };
  for (const auto& [name, series] : first.metrics) {
    if (!IsCompared(name) || series.empty()) continue;
    const auto other = second.metrics.find(name);
    if (other == second.metrics.end() || other->second.empty()) {
      tell_alone(first, name);
      continue;
    }
    v1::MetricComparison compared = CompareSeries(name, series, other->second);
    if (compared.points() == 0) {
      evidence.only_in_one.push_back(
          absl::StrCat("the values of ", name, " have no step in common"));
      continue;
    }
    if (series.size() != other->second.size()) {
      evidence.only_in_one.push_back(absl::StrCat(
          name, " has ", series.size(), " values in ", first.job, " and ", other->second.size(),
          " in ", second.job, ", ", compared.points(), " of them at the same steps"));
    }
    evidence.are_same = evidence.are_same && compared.difference() == 0;
    evidence.largest = std::max(evidence.largest, compared.difference());
    evidence.compared.push_back(std::move(compared));
  }
  for (const auto& [name, series] : second.metrics) {
    if (!IsCompared(name) || series.empty()) continue;
    const auto other = first.metrics.find(name);
    if (other == first.metrics.end() || other->second.empty()) tell_alone(second, name);
  }
  return evidence;
}

// Returns the last step at which the run has a value.
int64_t LastStep(const RunRecord& run) {
  int64_t last = 0;
  for (const auto& [name, series] : run.metrics) {
    if (IsCompared(name) && !series.empty()) last = std::max(last, series.back().step);
  }
  return last;
}

// Returns true if one of the runs went on for longer, by more than is tolerated. A run that writes
// its metrics every few seconds may have its last value a little earlier.
bool EndedElsewhere(int64_t first, int64_t second, double tolerance) {
  const auto longer = static_cast<double>(std::max(first, second));
  return static_cast<double>(std::abs(first - second)) > tolerance * longer;
}

// Says by how much the metrics differ that differ most.
std::vector<std::string> Differences(const MetricEvidence& evidence) {
  std::vector<const v1::MetricComparison*> unequal;
  for (const v1::MetricComparison& one : evidence.compared) {
    if (one.difference() > 0) unequal.push_back(&one);
  }
  std::stable_sort(unequal.begin(), unequal.end(),
                   [](const auto* a, const auto* b) { return a->difference() > b->difference(); });
  std::vector<std::string> sentences;
  for (size_t i = 0; i < unequal.size() && i < kNamedMax; ++i) {
    sentences.push_back(absl::StrCat(unequal[i]->name(), " differs by ",
                                     Percent(unequal[i]->difference()), " in the mean, from step ",
                                     unequal[i]->first_step(), " on"));
  }
  if (unequal.size() > kNamedMax) {
    sentences.push_back(absl::StrCat(unequal.size() - kNamedMax, " more metrics differ, by less"));
  }
  return sentences;
}

void AddReasons(std::vector<std::string> sentences, v1::Verification& verification) {
  for (std::string& sentence : sentences) verification.add_reasons(std::move(sentence));
}

std::vector<std::string> CausesOrNone(const RunRecord& first, const RunRecord& second) {
  std::vector<std::string> causes = Causes(first, second);
  if (causes.empty()) causes.push_back(NoCause(second));
  return causes;
}

std::string StateText(v1::JobState state) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

// Judges runs that ended alike.
void Judge(const RunRecord& first, const RunRecord& second, v1::Verification& verification) {
  const auto files = CompareCheckpoints(first, second);
  MetricEvidence metrics = CompareMetrics(first, second);
  for (const v1::MetricComparison& one : metrics.compared) *verification.add_metrics() = one;
  const std::vector<std::string> differences = Differences(metrics);
  if (files.has_value()) verification.add_reasons(files->sentence);
  if (files.has_value() && files->is_same) {
    verification.set_result(v1::VERIFICATION_RESULT_IDENTICAL);
    AddReasons(differences, verification);
    return;
  }
  // The files of a program may hold the time, but weights are weights.
  const bool may_be_identical = !files.has_value() || first.spec.has_program();
  if (metrics.compared.empty()) {
    const bool has_outputs = !first.outputs.empty() && !second.outputs.empty();
    const bool has_same_outputs = has_outputs && first.outputs == second.outputs;
    AddReasons(std::move(metrics.only_in_one), verification);
    if (has_outputs) {
      verification.add_reasons(has_same_outputs ? "the outputs are the same, byte for byte"
                                                : "the outputs differ");
    }
    if (has_same_outputs) {
      return verification.set_result(v1::VERIFICATION_RESULT_IDENTICAL);
    }
    if (!has_outputs && !files.has_value()) {
      verification.add_reasons(
          "there is nothing to compare: the two have no metric, no checkpoint of the same step and "
          "no outputs in common");
      return verification.set_result(v1::VERIFICATION_RESULT_FAILED);
    }
    verification.set_result(v1::VERIFICATION_RESULT_DIFFERENT);
    return AddReasons(CausesOrNone(first, second), verification);
  }
  const bool ended_elsewhere =
      EndedElsewhere(LastStep(first), LastStep(second), verification.tolerance());
  if (ended_elsewhere) {
    verification.add_reasons(absl::StrCat("the last values are of step ", LastStep(first), " in ",
                                          first.job, " and of step ", LastStep(second), " in ",
                                          second.job));
  }
  if (metrics.are_same && may_be_identical && !ended_elsewhere && metrics.only_in_one.empty()) {
    verification.set_result(v1::VERIFICATION_RESULT_IDENTICAL);
    verification.add_reasons(
        metrics.compared.size() == 1
            ? absl::StrCat("all values of ", metrics.compared[0].name(), " are the same")
            : absl::StrCat("all values of ", metrics.compared.size(), " metrics are the same"));
    return;
  }
  const bool is_within = metrics.largest <= verification.tolerance() && !ended_elsewhere;
  verification.set_result(is_within ? v1::VERIFICATION_RESULT_EQUIVALENT
                                    : v1::VERIFICATION_RESULT_DIFFERENT);
  if (metrics.are_same) verification.add_reasons("all values of the metrics are the same");
  AddReasons(differences, verification);
  AddReasons(std::move(metrics.only_in_one), verification);
  AddReasons(CausesOrNone(first, second), verification);
}

}  // namespace

bool IsCompared(absl::string_view metric) {
  constexpr absl::string_view kGroups[] = {"comm.", "compute.", "gpu.", "cpu.",
                                           "host.", "memory.",  "data."};
  constexpr absl::string_view kEndings[] = {"_per_s", "per_second", "seconds",  "_s",   "_ms",
                                            "bytes",  "fraction",   "duration", "time", "speed"};
  return std::none_of(std::begin(kGroups), std::end(kGroups),
                      [&](absl::string_view group) { return absl::StartsWith(metric, group); }) &&
         std::none_of(std::begin(kEndings), std::end(kEndings),
                      [&](absl::string_view ending) { return absl::EndsWith(metric, ending); });
}

v1::MetricComparison CompareSeries(const std::string& name, const Series& first,
                                   const Series& second) {
  v1::MetricComparison compared;
  compared.set_name(name);
  // With long doubles, no sum of finite values overflows.
  long double apart = 0;
  long double size = 0;
  bool differs = false;
  bool is_infinite = false;
  auto left = first.begin();
  auto right = second.begin();
  while (left != first.end() && right != second.end()) {
    if (left->step != right->step) {
      ++(left->step < right->step ? left : right);
      continue;
    }
    compared.set_points(compared.points() + 1);
    compared.set_left(left->value);
    compared.set_right(right->value);
    if (std::isfinite(left->value)) size += std::fabs(static_cast<long double>(left->value));
    if (!IsSame(left->value, right->value)) {
      if (!differs) compared.set_first_step(left->step);
      differs = true;
      if (std::isfinite(left->value) && std::isfinite(right->value)) {
        apart += std::fabs(static_cast<long double>(left->value) -
                           static_cast<long double>(right->value));
      } else {
        is_infinite = true;
      }
    }
    ++left;
    ++right;
  }
  if (!differs) return compared;
  const auto difference = static_cast<double>(apart / size);
  // A difference so small that it vanishes is still one.
  compared.set_difference(is_infinite || size == 0
                              ? kInfinite
                              : std::max(difference, std::numeric_limits<double>::min()));
  return compared;
}

v1::Verification Compare(const RunRecord& first, const RunRecord& second, double tolerance) {
  v1::Verification verification;
  verification.set_job(second.job);
  verification.set_tolerance(tolerance);
  verification.set_devices(DevicesText(second.devices));
  verification.set_worker_version(second.worker_version);
  if (second.state != v1::JOB_STATE_SUCCEEDED || first.state != v1::JOB_STATE_SUCCEEDED) {
    verification.set_result(v1::VERIFICATION_RESULT_FAILED);
    for (const RunRecord* run : {&first, &second}) {
      if (run->state == v1::JOB_STATE_SUCCEEDED) continue;
      verification.add_reasons(absl::StrCat(run->job, " is ", StateText(run->state),
                                            run->failure.empty() ? "" : ": ", run->failure,
                                            ", so there is nothing to compare"));
    }
    AddReasons(Causes(first, second), verification);
    return verification;
  }
  Judge(first, second, verification);
  return verification;
}

}  // namespace trainyard::verification
