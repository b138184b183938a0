// Reads the spec by protobuf's own JSON parser, and checks it by the rules beside the proto's
// fields, so that no limit or default of the spec stands in the worker's code.
#include "worker/trainer/plan/spec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/spec/fields.h"
#include "common/spec/layers.h"
#include "common/spec/resolve.h"
#include "google/protobuf/util/json_util.h"

namespace trainyard::trainer {

absl::StatusOr<v1::JobSpec> ParseSpec(absl::string_view spec_json) {
  google::protobuf::util::JsonParseOptions options;
  // A checkpoint may have been written by a version whose spec had fields that are gone.
  options.ignore_unknown_fields = true;
  v1::JobSpec spec;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(std::string(spec_json), &spec, options);
  if (!parsed.ok()) {
    return spec::FieldError(
        "spec", absl::StrCat("is not a JobSpec in JSON: ", std::string(parsed.message())));
  }
  return spec::ResolveForTrainer(spec);
}

bool IsBitwise(const v1::JobSpec& spec) {
  return spec.train().reproducibility() == v1::REPRODUCIBILITY_BITWISE;
}

ModelEnds EndsOf(const v1::ModelSpec& model) {
  const auto of_images = [](const auto& images) -> ModelEnds {
    return {.input = {images.input().begin(), images.input().end()}, .classes = images.classes()};
  };
  switch (model.model_case()) {
    case v1::ModelSpec::kMlp:
      return of_images(model.mlp());
    case v1::ModelSpec::kConvnet:
      return of_images(model.convnet());
    case v1::ModelSpec::kResnet:
      return of_images(model.resnet());
    case v1::ModelSpec::kWideResnet:
      return of_images(model.wide_resnet());
    case v1::ModelSpec::kAlexnet:
      return of_images(model.alexnet());
    case v1::ModelSpec::kVgg:
      return of_images(model.vgg());
    case v1::ModelSpec::kGooglenet:
      return of_images(model.googlenet());
    case v1::ModelSpec::kGpt2:
      return {.input = {model.gpt2().context()},
              .classes = model.gpt2().vocabulary(),
              .vocabulary = model.gpt2().vocabulary()};
    case v1::ModelSpec::kLayers:
      return {.input = {model.layers().input().begin(), model.layers().input().end()},
              .classes = spec::ClassesOf(model.layers()),
              .vocabulary = model.layers().vocabulary()};
    case v1::ModelSpec::MODEL_NOT_SET:
      break;
  }
  return {};
}

}  // namespace trainyard::trainer
