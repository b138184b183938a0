// Checks a spec against what is known of its data set. Facts that only the files tell are checked
// by the trainer, which has the files.
#include "common/spec/data_checks.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/datasets.h"
#include "common/spec/layers.h"
#include "common/spec/tokens.h"

namespace trainyard::spec {
namespace {

using Violations = std::vector<FieldViolation>;

// Calls `visit` with the message of the chosen model and its path, if that model reads images and
// has a number of classes. Stacks of layers may read images or tokens, and are not visited.
template <typename Visit>
void VisitImageModel(const v1::ModelSpec& model, const Visit& visit) {
  switch (model.model_case()) {
    case v1::ModelSpec::kMlp:
      return visit(model.mlp(), "spec.model.mlp");
    case v1::ModelSpec::kConvnet:
      return visit(model.convnet(), "spec.model.convnet");
    case v1::ModelSpec::kResnet:
      return visit(model.resnet(), "spec.model.resnet");
    case v1::ModelSpec::kWideResnet:
      return visit(model.wide_resnet(), "spec.model.wide_resnet");
    case v1::ModelSpec::kAlexnet:
      return visit(model.alexnet(), "spec.model.alexnet");
    case v1::ModelSpec::kVgg:
      return visit(model.vgg(), "spec.model.vgg");
    case v1::ModelSpec::kGooglenet:
      return visit(model.googlenet(), "spec.model.googlenet");
    case v1::ModelSpec::kGpt2:
    case v1::ModelSpec::kLayers:
    case v1::ModelSpec::MODEL_NOT_SET:
      break;
  }
}

// Checks the input of the model against the data set.
template <typename Model>
void CheckInput(const Model& model, const std::string& path, const datasets::Facts& facts,
                Violations& violations) {
  const std::vector<int64_t> shape = facts.shape();
  if (!std::equal(model.input().begin(), model.input().end(), shape.begin(), shape.end())) {
    violations.push_back(
        {path + ".input",
         absl::StrCat("[", absl::StrJoin(model.input(), ", "), "] does not fit data set '",
                      facts.name, "'; expected [", absl::StrJoin(shape, ", "), "]")});
  }
}

// Checks the input and the classes.
template <typename Model>
void CheckModel(const Model& model, const std::string& path, const datasets::Facts& facts,
                Violations& violations) {
  CheckInput(model, path, facts, violations);
  if (model.classes() < facts.classes) {
    violations.push_back(
        {path + ".classes", absl::StrCat(model.classes(), " is too few for data set '", facts.name,
                                         "'; expected ", facts.classes, " or more")});
  }
}

// Refuses fields that only the data set `images` takes if the data set is another one, and requires
// those that `images` needs. Tokens also have a path.
void CheckImages(const v1::JobSpec& spec, Violations& violations) {
  const v1::DataSpec& data = spec.data();
  const bool is_images = data.dataset() == datasets::kImages.name;
  const auto refuse = [&](bool is_set, const char* field) {
    if (!is_set || is_images) return;
    violations.push_back({absl::StrCat("spec.data.", field),
                          absl::StrCat("has no meaning for data set '", data.dataset(),
                                       "'; only images have it: leave it out")});
  };
  refuse(data.has_path() && data.dataset() != datasets::kTokens.name, "path");
  refuse(data.has_image_size(), "image_size");
  refuse(data.has_resize(), "resize");
  refuse(data.on_corrupt() != v1::ON_CORRUPT_UNSPECIFIED, "on_corrupt");
  if (!is_images) return;
  const int64_t side = data.has_image_size() ? data.image_size() : datasets::kDefaultImageSize;
  if (data.path().empty()) {
    violations.push_back(
        {"spec.data.path", "must be given for images; write their folder, such as 'flowers'"});
  }
  if (data.has_resize() && data.resize() < side) {
    violations.push_back({"spec.data.resize", absl::StrCat(data.resize(), " is less than ", side,
                                                           ", the side of a sample")});
  }
  const auto check = [&](const auto& model, const std::string& path) {
    const std::vector<int64_t> shape = {datasets::kImages.channels, side, side};
    if (std::equal(model.input().begin(), model.input().end(), shape.begin(), shape.end())) return;
    violations.push_back({path + ".input", absl::StrCat("[", absl::StrJoin(model.input(), ", "),
                                                        "] does not fit the images; expected [",
                                                        absl::StrJoin(shape, ", "), "]")});
  };
  VisitImageModel(spec.model(), check);
  if (spec.model().has_layers()) check(spec.model().layers(), "spec.model.layers");
}

// Checks the input and the output of a stack of layers against the data.
void CheckLayers(const v1::LayersModel& model, const datasets::Facts& facts,
                 Violations& violations) {
  if (model.vocabulary() > 0) return;  // CheckTokens checks these
  const std::string path = "spec.model.layers";
  CheckInput(model, path, facts, violations);
  const int64_t classes = ClassesOf(model);
  if (classes == 0 || classes >= facts.classes) return;
  violations.push_back(
      {absl::StrCat(path, ".stack[", model.stack_size() - 1, "]"),
       absl::StrCat("ends the stack with ", classes, " classes, too few for data set '", facts.name,
                    "'; expected ", facts.classes, " or more")});
}

void CheckEnds(const v1::ModelSpec& model, const datasets::Facts& facts, Violations& violations) {
  VisitImageModel(model, [&](const auto& chosen, const std::string& path) {
    CheckModel(chosen, path, facts, violations);
  });
  if (model.has_layers()) CheckLayers(model.layers(), facts, violations);
}

}  // namespace

int64_t TrainSplitSize(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  const datasets::Facts* facts = datasets::Find(data.dataset());
  if (facts == nullptr) return 0;
  if (facts->has_tokens()) return TokenSamples(spec);
  return data.train_size() > 0 ? data.train_size() : facts->train_size;
}

void CheckData(const v1::JobSpec& spec, std::vector<FieldViolation>& violations) {
  CheckImages(spec, violations);
  CheckTokens(spec, violations);
  const std::string& path = spec.data().path();
  if (!path.empty() && !datasets::StaysBelow(path)) {
    violations.push_back(
        {"spec.data.path", absl::StrCat("'", path,
                                        "' leads out of the folder of data sets; write "
                                        "a path below it, without '..'")});
  }
  const datasets::Facts* facts = datasets::Find(spec.data().dataset());
  if (facts == nullptr || facts->has_tokens() || facts->side == 0) return;
  CheckEnds(spec.model(), *facts, violations);
  const auto check_size = [&](const char* field, int64_t size, int64_t most) {
    if (size <= most || most == 0 || facts->is_generated()) return;
    violations.push_back({absl::StrCat("spec.data.", field),
                          absl::StrCat(size, " is more than the ", most, " samples of data set '",
                                       facts->name, "'")});
  };
  check_size("train_size", spec.data().train_size(), facts->train_size);
  check_size("test_size", spec.data().test_size(), facts->test_size);
  const int64_t samples = TrainSplitSize(spec);
  if (spec.train().global_batch() > samples) {
    violations.push_back({"spec.train.global_batch",
                          absl::StrCat(spec.train().global_batch(), " is more than the ", samples,
                                       " training samples of data set '", facts->name, "'")});
  }
}

std::string DatasetKey(const v1::DataSpec& data) {
  const datasets::Facts* facts = datasets::Find(data.dataset());
  if (facts == nullptr || facts->is_generated()) return "";
  const std::string& path = data.path();
  const bool is_folder = facts->source == datasets::Facts::Source::kUserFolder;
  if (is_folder && (path.find('/') != std::string::npos || path == ".")) return "";
  return DatasetKey(data.dataset(), is_folder ? path : "");
}

std::string DatasetKey(absl::string_view dataset, absl::string_view path) {
  return path.empty() ? std::string(dataset) : absl::StrCat(dataset, ":", path);
}

}  // namespace trainyard::spec
