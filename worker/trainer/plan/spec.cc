// Reads the spec with protobuf's own JSON parser, and checks it by the rules beside the proto's
// fields, so that no limit or default of the spec is repeated in the worker's code.
#include "worker/trainer/plan/spec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/spec/fields.h"
#include "common/spec/layers.h"
#include "common/spec/resolve.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace trainyard::trainer {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Removes the fields that this version does not know. Protobuf's parser can ignore them too, but
// then it also ignores values of enums that it does not know, and a misspelt number type would
// silently be replaced by the default.
void DropUnknownFields(const Descriptor& type, nlohmann::json& object) {
  for (auto it = object.begin(); it != object.end();) {
    const FieldDescriptor* field = type.FindFieldByName(it.key());
    if (field == nullptr) field = type.FindFieldByCamelcaseName(it.key());
    if (field == nullptr) {
      it = object.erase(it);
      continue;
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map()) {
      if (it->is_object()) DropUnknownFields(*field->message_type(), *it);
      if (it->is_array()) {
        for (nlohmann::json& element : *it) {
          if (element.is_object()) DropUnknownFields(*field->message_type(), element);
        }
      }
    }
    ++it;
  }
}

}  // namespace

absl::StatusOr<v1::JobSpec> ParseSpec(absl::string_view spec_json) {
  nlohmann::json json = nlohmann::json::parse(spec_json.begin(), spec_json.end(), nullptr,
                                              /*allow_exceptions=*/false);
  if (!json.is_object()) return spec::FieldError("spec", "is not a JobSpec in JSON");
  DropUnknownFields(*v1::JobSpec::descriptor(), json);
  v1::JobSpec spec;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace), &spec);
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
