// Tests what editors do with the schema: the jobs of the repository are accepted, and mistakes are
// not. The validator knows the words of JSON Schema (draft 7) that our schema is made of, and no
// others.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "client/spec_loader/yaml_tree.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"

namespace trainyard::schema {
namespace {

using nlohmann::json;
using spec_loader::YamlNode;

const json& Schema() {
  static const auto* schema =
      new json(json::parse(*ReadFile(trainyard::testing::SourcePath("jobs/job-spec.schema.json"))));
  return *schema;
}

bool HasType(const json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  return type == "null" && value.is_null();
}

bool Accepts(const json& schema, const json& value);

size_t CountAccepting(const json& schemas, const json& value) {
  size_t count = 0;
  for (const json& schema : schemas) count += Accepts(schema, value) ? 1 : 0;
  return count;
}

bool AcceptsNumber(const json& schema, const json& value) {
  const double number = value.get<double>();
  return !(schema.contains("minimum") && number < schema["minimum"].get<double>()) &&
         !(schema.contains("maximum") && number > schema["maximum"].get<double>()) &&
         !(schema.contains("exclusiveMinimum") &&
           number <= schema["exclusiveMinimum"].get<double>()) &&
         !(schema.contains("exclusiveMaximum") &&
           number >= schema["exclusiveMaximum"].get<double>());
}

bool AcceptsObject(const json& schema, const json& value) {
  for (const json& name : schema.value("required", json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  if (!schema.contains("properties")) return true;
  for (const auto& [name, member] : value.items()) {
    if (!schema["properties"].contains(name)) return false;
    if (!Accepts(schema["properties"][name], member)) return false;
  }
  return true;
}

bool AcceptsArray(const json& schema, const json& value) {
  if (schema.contains("minItems") && value.size() < schema["minItems"]) return false;
  if (schema.contains("maxItems") && value.size() > schema["maxItems"]) return false;
  for (const json& element : value) {
    if (schema.contains("items") && !Accepts(schema["items"], element)) return false;
  }
  return true;
}

bool Accepts(const json& schema, const json& value) {
  if (schema.contains("$ref")) {
    const std::string reference = schema["$ref"];
    return Accepts(Schema().at(json::json_pointer(reference.substr(1))), value);
  }
  if (schema.contains("type") && !HasType(value, schema["type"])) return false;
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return false;
  }
  if (schema.contains("anyOf") && CountAccepting(schema["anyOf"], value) == 0) return false;
  if (schema.contains("oneOf") && CountAccepting(schema["oneOf"], value) != 1) return false;
  if (schema.contains("allOf") &&
      CountAccepting(schema["allOf"], value) != schema["allOf"].size()) {
    return false;
  }
  if (schema.contains("not") && Accepts(schema["not"], value)) return false;
  if (value.is_string() && schema.contains("pattern") &&
      !std::regex_search(value.get<std::string>(),
                         std::regex(schema["pattern"].get<std::string>()))) {
    return false;
  }
  return (!value.is_number() || AcceptsNumber(schema, value)) &&
         (!value.is_object() || AcceptsObject(schema, value)) &&
         (!value.is_array() || AcceptsArray(schema, value));
}

json ToJson(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar: {
      const json value = json::parse(node.text, nullptr, /*allow_exceptions=*/false);
      return node.is_quoted || value.is_discarded() ? json(node.text) : value;
    }
    case YamlNode::Kind::kList: {
      json list = json::array();
      for (const YamlNode& element : node.elements) list.push_back(ToJson(element));
      return list;
    }
    case YamlNode::Kind::kMap:
      break;
  }
  json map = json::object();
  for (const auto& entry : node.entries) map[entry.key] = ToJson(entry.value);
  return map;
}

bool AcceptsYaml(const std::string& text) {
  return Accepts(Schema(), ToJson(spec_loader::ParseYaml(text).root));
}

TEST(SchemaAccepts, TheJobsThatComeAlong) {
  int jobs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(trainyard::testing::SourcePath("jobs"))) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_TRUE(AcceptsYaml(*ReadFile(entry.path().string()))) << entry.path();
    ++jobs;
  }
  EXPECT_GE(jobs, 13);
}

TEST(SchemaAccepts, AProgramInPlaceOfAModel) {
  EXPECT_TRUE(AcceptsYaml("name: a\nprogram: {command: [run], params: {lr: 0.1, on: true}}\n"));
  EXPECT_FALSE(AcceptsYaml("name: a\nprogram: {command: run}\n"));
  EXPECT_FALSE(AcceptsYaml("name: a\nmodel: {mlp: {}}\n")) << "the rest of a training is missing";
  EXPECT_FALSE(AcceptsYaml("name: a\n"));
}

std::string WithStack(const std::string& stack) {
  return "name: a\nmodel: {layers: {stack: " + stack +
         "}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\noptimizer: {sgd: {lr: 0.1}}\n";
}

TEST(SchemaAccepts, LayersInAllForms) {
  EXPECT_TRUE(AcceptsYaml(WithStack("[flatten, {linear: {features: 10}}]")));
  EXPECT_TRUE(AcceptsYaml(WithStack("[{flatten: {}}, {name: fc, linear: {features: 10}}]")));
  EXPECT_TRUE(AcceptsYaml(WithStack("[{name: f, flatten: }, {from: [f], max_pool: {}}]")));
}

TEST(SchemaAccepts, NoLayersWithSlips) {
  EXPECT_FALSE(AcceptsYaml(WithStack("[]")));
  EXPECT_FALSE(AcceptsYaml(WithStack("[flaten]")));
  EXPECT_FALSE(AcceptsYaml(WithStack("[linear]"))) << "linear needs its features";
  EXPECT_FALSE(AcceptsYaml(WithStack("[{linear: {feature: 10}}]")));
  EXPECT_FALSE(AcceptsYaml(WithStack("[{linear: {features: 0}}]")));
  EXPECT_FALSE(AcceptsYaml(WithStack("[{relu: {}, tanh: {}}]")));
  EXPECT_FALSE(AcceptsYaml(WithStack("[{name: nothing}]")));
  EXPECT_FALSE(AcceptsYaml(WithStack("[{from: relu1, tanh: {}}]"))) << "from is a list";
}

}  // namespace
}  // namespace trainyard::schema
