// Reads the parameters of a sweep, and tries their ends on the spec.
#include "common/spec/sweep_checks.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/spec/change.h"
#include "common/spec/fields.h"
#include "common/sweep/space.h"

namespace trainyard::spec {
namespace {

constexpr char kParameters[] = "spec.sweep.parameters";
// Draws are in [0, 1).
constexpr double kHighestDraw = 1.0 - 1e-9;

// Returns true if trials may differ in this field.
bool IsSearched(absl::string_view path) {
  for (const absl::string_view other : {"sweep", "name"}) {
    if (path == other || absl::StartsWith(path, absl::StrCat(other, "."))) return false;
  }
  return true;
}

void CheckParameter(const v1::JobSpec& spec, const std::string& path,
                    const sweep::Distribution& values, std::vector<FieldViolation>& violations) {
  if (!IsSearched(path)) {
    violations.push_back({absl::StrCat(kParameters, ".", path),
                          absl::StrCat("'", path, "' cannot be searched; expected another field")});
    return;
  }
  for (const double quantile : {0.0, kHighestDraw}) {
    v1::JobSpec changed = spec;
    const absl::Status status = ApplyChange(changed, path, values.At(quantile));
    if (status.ok()) continue;
    for (const FieldViolation& violation : GetFieldViolations(status)) {
      violations.push_back({absl::StrCat(kParameters, ".", path), violation.description});
    }
    return;
  }
}

// The prefix of what is reported of averaged weights.
constexpr char kAveraged[] = "test.ema_";

// Returns the names of what trainers report that one might search by.
std::vector<std::string> ReportedMetrics() {
  std::vector<std::string> names = {"train.loss", "train.accuracy", "samples_per_s"};
  for (const char* weights : {"test.", kAveraged}) {
    for (const char* name : {"loss", "accuracy", "top5", "perplexity"}) {
      names.push_back(absl::StrCat(weights, name));
    }
  }
  return names;
}

// A program reports what it likes.
void CheckObjective(const v1::JobSpec& spec, std::vector<FieldViolation>& violations) {
  const v1::SweepSpec& sweep = spec.sweep();
  const std::string& objective = sweep.has_maximize() ? sweep.maximize() : sweep.minimize();
  if (!spec.has_model() || objective.empty()) return;
  const char* field = sweep.has_maximize() ? "spec.sweep.maximize" : "spec.sweep.minimize";
  const std::vector<std::string> names = ReportedMetrics();
  const bool has_averages =
      spec.optimizer().ema_decay() > 0 || sweep.parameters().contains("optimizer.ema_decay");
  if (std::find(names.begin(), names.end(), objective) == names.end()) {
    violations.push_back({field, absl::StrCat("'", objective, "' is reported by no training",
                                              Suggestion(objective, names))});
  } else if (absl::StartsWith(objective, kAveraged) && !has_averages) {
    violations.push_back({field, absl::StrCat("'", objective, "' needs optimizer.ema_decay")});
  }
}

void CheckNumbers(const v1::SweepSpec& sweep, const sweep::Space& space,
                  std::vector<FieldViolation>& violations) {
  const bool is_grid = sweep.search() == v1::SWEEP_SEARCH_GRID;
  if (is_grid && space.grid_size() == 0) {
    for (const auto& [path, values] : space.parameters()) {
      if (values.grid_size() > 0) continue;
      violations.push_back(
          {absl::StrCat(kParameters, ".", path),
           "does not say how many points its grid has; add a third number: log(1e-4, 1, 5)"});
    }
  } else if (is_grid && space.grid_size() > sweep::kGridPointsMax) {
    violations.push_back(
        {kParameters, absl::StrCat("the grid has more than ", sweep::kGridPointsMax, " points")});
  }
  if (!is_grid && sweep.trials() == 0) {
    violations.push_back({"spec.sweep.trials", "must be given: the number of trials"});
  }
  if (sweep.search() == v1::SWEEP_SEARCH_PBT && sweep.trials() == 1) {
    violations.push_back({"spec.sweep.trials", "PBT compares trials; expected 2 or more"});
  }
}

}  // namespace

void CheckSweep(const v1::JobSpec& spec, std::vector<FieldViolation>& violations) {
  if (!spec.has_sweep()) return;
  const std::map<std::string, std::string> parameters(spec.sweep().parameters().begin(),
                                                      spec.sweep().parameters().end());
  std::vector<sweep::Space::Mistake> mistakes;
  const sweep::Space space = sweep::Space::Parse(parameters, mistakes);
  for (auto& [path, message] : mistakes) {
    violations.push_back({absl::StrCat(kParameters, ".", path), std::move(message)});
  }
  for (const auto& [path, values] : space.parameters()) {
    CheckParameter(spec, path, values, violations);
  }
  CheckObjective(spec, violations);
  if (mistakes.empty() && !parameters.empty()) CheckNumbers(spec.sweep(), space, violations);
}

}  // namespace trainyard::spec
