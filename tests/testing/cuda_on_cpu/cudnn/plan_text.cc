// Writes plans as JSON, and reads them again.
#include "tests/testing/cuda_on_cpu/cudnn/plan_text.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/attributes.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

using Json = nlohmann::json;

// A graph, its operations and their tensors.
constexpr int kDepthMax = 4;

Json ToJson(const Descriptor& descriptor) {
  Json attributes = Json::array();
  for (const AttributeRule& rule : RuleOf(descriptor.type)->attributes) {
    const auto found = descriptor.values.find(rule.name);
    // A handle has no meaning outside of its process.
    if (found == descriptor.values.end() || rule.use == AttributeRule::Use::kComputed ||
        rule.type == CUDNN_TYPE_HANDLE) {
      continue;
    }
    const Value& value = found->second;
    Json attribute = {{"name", static_cast<int>(rule.name)},
                      {"label", rule.label},
                      {"type", static_cast<int>(value.type)},
                      {"count", value.count}};
    if (value.type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      for (const auto& child : value.children) {
        attribute["descriptors"].push_back(ToJson(*child));
      }
    } else {
      attribute["bytes"] = absl::BytesToHexString(
          absl::string_view(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()));
    }
    attributes.push_back(std::move(attribute));
  }
  return {{"kind", static_cast<int>(descriptor.type)}, {"attributes", std::move(attributes)}};
}

cudnnStatus_t Malformed(const std::string& what) {
  return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat("the text of a plan: ", what));
}

// Returns false if there is no such integer.
bool ReadInt(const Json& object, const char* key, int64_t* value) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer()) {
    return false;
  }
  *value = object[key].get<int64_t>();
  return true;
}

cudnnStatus_t FromJson(const Json& json, int depth, std::shared_ptr<const Descriptor>* descriptor);

cudnnStatus_t ReadAttribute(const Json& json, int depth, Descriptor* descriptor) {
  int64_t name = 0, type = 0, count = 0;
  if (!ReadInt(json, "name", &name) || !ReadInt(json, "type", &type) ||
      !ReadInt(json, "count", &count)) {
    return Malformed("an attribute is incomplete");
  }
  const AttributeRule* rule =
      RuleOf(descriptor->type)->Find(static_cast<cudnnBackendAttributeName_t>(name));
  if (rule == nullptr || (type != rule->type && type != rule->other_type) || count < 1 ||
      count > rule->count_max) {
    return Malformed(absl::StrCat("attribute ", name, " is none, or of another type"));
  }
  Value value;
  value.type = static_cast<cudnnBackendAttributeType_t>(type);
  value.count = count;
  if (value.type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (const Json& child : json.value("descriptors", Json::array())) {
      value.children.emplace_back();
      TY_CUDNN_TRY(FromJson(child, depth + 1, &value.children.back()));
    }
    if (static_cast<int64_t>(value.children.size()) != count) {
      return Malformed(absl::StrCat(rule->label, " lacks descriptors"));
    }
  } else {
    if (!json.contains("bytes") || !json["bytes"].is_string()) {
      return Malformed(absl::StrCat(rule->label, " lacks its value"));
    }
    const std::string bytes = absl::HexStringToBytes(json["bytes"].get<std::string>());
    if (static_cast<int64_t>(bytes.size()) != count * ElementBytes(value.type)) {
      return Malformed(absl::StrCat(rule->label, " has ", bytes.size(), " bytes"));
    }
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    value.bytes.assign(begin, begin + bytes.size());
  }
  descriptor->values[rule->name] = std::move(value);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FromJson(const Json& json, int depth, std::shared_ptr<const Descriptor>* descriptor) {
  int64_t kind = 0;
  if (depth > kDepthMax || !ReadInt(json, "kind", &kind) ||
      RuleOf(static_cast<cudnnBackendDescriptorType_t>(kind)) == nullptr ||
      !json.contains("attributes") || !json["attributes"].is_array()) {
    return Malformed("a descriptor is incomplete");
  }
  auto made = std::make_shared<Descriptor>();
  made->type = static_cast<cudnnBackendDescriptorType_t>(kind);
  for (const Json& attribute : json["attributes"]) {
    TY_CUDNN_TRY(ReadAttribute(attribute, depth, made.get()));
  }
  TY_CUDNN_TRY(Finalize(made.get()));
  *descriptor = std::move(made);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

std::string PlanText(const Descriptor& graph, int64_t engine) {
  const Json json = {
      {"cudnnVersion", CUDNN_VERSION}, {"engineId", engine}, {"operationGraph", ToJson(graph)}};
  return json.dump();
}

cudnnStatus_t ReadPlanText(const std::string& text, std::shared_ptr<const Descriptor>* graph,
                           int64_t* engine) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  int64_t version = 0;
  if (json.is_discarded() || !ReadInt(json, "cudnnVersion", &version) ||
      !ReadInt(json, "engineId", engine) || !json.contains("operationGraph")) {
    return Malformed("it is no plan");
  }
  if (version != CUDNN_VERSION) {
    return Fail(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH,
                absl::StrCat("the plan is of cuDNN ", version));
  }
  TY_CUDNN_TRY(FromJson(json["operationGraph"], 0, graph));
  return (*graph)->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
             ? CUDNN_STATUS_SUCCESS
             : Malformed("its graph is something else");
}

bool IsDeviceText(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  int64_t version = 0;
  return !json.is_discarded() && ReadInt(json, "deviceVer", &version);
}

}  // namespace trainyard::cuda_on_cpu::cudnn
