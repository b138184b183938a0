// Checks that networks that read tokens get data sets of tokens, and other networks get images.
#include "common/spec/tokens.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/datasets.h"
#include "common/spec/network_limits.h"

namespace trainyard::spec {
namespace {

using Violations = std::vector<FieldViolation>;

// The tokens that a network reads. A context of 0 means that the network reads images.
struct TokenInput {
  int64_t context = 0;
  int64_t vocabulary = 0;
  std::string path;
  std::string context_field;
};

TokenInput InputOf(const v1::ModelSpec& model) {
  if (model.has_gpt2()) {
    return {model.gpt2().context(), model.gpt2().vocabulary(), "spec.model.gpt2", "context"};
  }
  if (model.has_layers() && model.layers().vocabulary() > 0 && model.layers().input_size() == 1) {
    return {model.layers().input(0), model.layers().vocabulary(), "spec.model.layers", "input"};
  }
  return {};
}

// Refuses fields that have a meaning only for images.
void RefuseImageFields(const v1::DataSpec& data, Violations& violations) {
  const auto refuse = [&](bool is_set, const char* field) {
    if (!is_set) return;
    violations.push_back({absl::StrCat("spec.data.", field),
                          absl::StrCat("has no meaning for the tokens of data set '",
                                       data.dataset(), "'; leave it out")});
  };
  const v1::AugmentSpec& augment = data.augment();
  refuse(augment.has_pad_crop(), "augment.pad_crop");
  refuse(augment.has_random_resized_crop(), "augment.random_resized_crop");
  refuse(augment.flip(), "augment.flip");
  refuse(augment.has_color(), "augment.color");
  refuse(augment.cutout() > 0, "augment.cutout");
  refuse(data.normalize() == v1::NORMALIZE_UNIT, "normalize");
  refuse(data.train_size() > 0, "train_size");
  refuse(data.test_size() > 0, "test_size");
}

void CheckText(const v1::JobSpec& spec, const TokenInput& input, Violations& violations) {
  if (input.vocabulary < datasets::kTinyShakespeare.classes) {
    violations.push_back(
        {input.path + ".vocabulary", absl::StrCat(input.vocabulary, " is too few for data set '",
                                                  datasets::kTinyShakespeare.name, "'; expected ",
                                                  datasets::kTinyShakespeare.classes, " or more")});
  }
  // A sample needs its characters and the one that follows.
  const int64_t most = datasets::kTinyShakespeareLength -
                       datasets::TrainCharacters(datasets::kTinyShakespeareLength) - 1;
  if (input.context > most) {
    violations.push_back(
        {absl::StrCat(input.path, ".", input.context_field),
         absl::StrCat(input.context, " is longer than the test split of data set '",
                      datasets::kTinyShakespeare.name, "'; expected at most ", most)});
  } else if (spec.train().global_batch() > TokenSamples(spec)) {
    violations.push_back(
        {"spec.train.global_batch",
         absl::StrCat(spec.train().global_batch(), " is more than the ", TokenSamples(spec),
                      " training samples of ", input.context, " characters of data set '",
                      datasets::kTinyShakespeare.name, "'")});
  }
}

}  // namespace

bool HasTokens(absl::string_view dataset) {
  const datasets::Facts* facts = datasets::Find(dataset);
  return facts != nullptr && facts->has_tokens();
}

int64_t TokenSamples(const v1::JobSpec& spec) {
  const int64_t context = InputOf(spec.model()).context;
  if (spec.data().dataset() != datasets::kTinyShakespeare.name || context < 1) return 0;
  return (datasets::TrainCharacters(datasets::kTinyShakespeareLength) - 1) / context;
}

void CheckTokens(const v1::JobSpec& spec, Violations& violations) {
  const v1::DataSpec& data = spec.data();
  const TokenInput input = InputOf(spec.model());
  const std::string model = ModelName(spec.model());
  if (!HasTokens(data.dataset())) {
    if (input.context == 0 || data.dataset().empty()) return;
    violations.push_back(
        {"spec.data.dataset",
         absl::StrCat("'", data.dataset(), "' has images, but ", model, " reads tokens; use ",
                      datasets::kTokens.name, " or ", datasets::kTinyShakespeare.name)});
    return;
  }
  RefuseImageFields(data, violations);
  if (data.dataset() == datasets::kTokens.name && data.path().empty()) {
    violations.push_back(
        {"spec.data.path", "must be given for tokens; write their folder, such as 'webtext'"});
  }
  if (input.context > 0) {
    if (data.dataset() == datasets::kTinyShakespeare.name) CheckText(spec, input, violations);
  } else if (!model.empty()) {
    violations.push_back({absl::StrCat("spec.model.", model),
                          absl::StrCat("reads images, but data set '", data.dataset(),
                                       "' has tokens; use gpt2, or layers with a vocabulary")});
  }
}

}  // namespace trainyard::spec
