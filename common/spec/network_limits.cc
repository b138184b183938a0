// Finds the limits of a network by planning it as a stack of layers: for the sample of the spec
// and, if that does not fit, for other sizes until one fits.
#include "common/spec/network_limits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/layers/cuts.h"
#include "common/layers/plan.h"
#include "common/spec/networks.h"
#include "common/spec/rules.h"

namespace trainyard::spec {
namespace {

// The largest side that is tried. No network needs larger images.
constexpr int64_t kSmallestSidesMax = 256;

// Returns true if the network takes images of this side, or samples of this many tokens.
bool Fits(layers::Stack network, int64_t size) {
  const bool is_image = network.vocabulary == 0;
  std::fill(network.input.begin() + (is_image ? 1 : 0), network.input.end(), size);
  std::vector<FieldViolation> violations;
  layers::PlanStack(network, "", violations);
  return violations.empty();
}

// Returns the first size that fits, or 0 if no size up to kSmallestSidesMax does.
int64_t SmallestFit(const layers::Stack& network) {
  for (int64_t size = 1; size <= kSmallestSidesMax; ++size) {
    if (Fits(network, size)) return size;
  }
  return 0;
}

// Returns the largest size that fits. `fits` is a size that fits, and `too_large` is one that does
// not.
int64_t LargestFit(const layers::Stack& network, int64_t fits, int64_t too_large) {
  while (too_large - fits > 1) {
    const int64_t middle = fits + (too_large - fits) / 2;
    (Fits(network, middle) ? fits : too_large) = middle;
  }
  return fits;
}

}  // namespace

std::string ModelName(const v1::ModelSpec& model) {
  const auto* oneof = v1::ModelSpec::descriptor()->FindOneofByName("model");
  const auto* field = model.GetReflection()->GetOneofFieldDescriptor(model, oneof);
  return field == nullptr ? std::string() : field->name();
}

void CheckSampleSize(const v1::ModelSpec& model, std::vector<FieldViolation>& violations) {
  if (model.has_layers()) return;
  // Most specs have the model of the one before, as the jobs of a sweep do. To plan a deep network
  // takes longer than all other checks.
  thread_local std::string last_accepted;
  std::string bytes = model.SerializeAsString();
  if (bytes == last_accepted) return;
  // If a field breaks its own rule, that violation is enough. The network could also be too large
  // to plan.
  if (!ValidateRules(model, "").empty()) return;
  const absl::StatusOr<layers::Stack> written = networks::StackOf(NetworkOf(model));
  if (!written.ok()) return;  // another check reports that there is no such network
  const layers::Stack& network = *written;
  std::vector<FieldViolation> mistakes;
  layers::PlanStack(network, "", mistakes);
  if (mistakes.empty()) {
    last_accepted = std::move(bytes);
    return;
  }
  const int64_t smallest = SmallestFit(network);
  // If no size fits, there is another mistake, which another check reports.
  if (smallest == 0) return;
  const std::string name = ModelName(model);
  const std::string path = absl::StrCat("spec.model.", name);
  if (network.vocabulary > 0) {
    const int64_t context = network.input[0];
    violations.push_back({path + ".context",
                          absl::StrCat(context, " is too large for ", name,
                                       " with a vocabulary of ", network.vocabulary, "; expected ",
                                       LargestFit(network, smallest, context), " or less")});
    return;
  }
  const auto [least, most] = std::minmax(network.input[1], network.input[2]);
  const bool is_small = least < smallest;
  violations.push_back(
      {path + ".input", absl::StrCat("[", absl::StrJoin(network.input, ", "), "] is too ",
                                     is_small ? "small" : "large", " for ", name,
                                     "; expected a height and width of ",
                                     is_small ? smallest : LargestFit(network, smallest, most),
                                     is_small ? " or more" : " or less")});
}

int64_t MostStages(const v1::ModelSpec& model) {
  if (!ValidateRules(model, "").empty()) return 0;
  const absl::StatusOr<layers::Stack> network = networks::StackOf(NetworkOf(model));
  if (!network.ok()) return 0;
  std::vector<FieldViolation> mistakes;
  const layers::StackPlan plan = layers::PlanStack(*network, "", mistakes);
  return mistakes.empty() ? layers::CountCuts(*network, plan) + 1 : 0;
}

}  // namespace trainyard::spec
