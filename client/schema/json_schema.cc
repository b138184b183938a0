// Writes the schema by protobuf reflection, so that it always agrees with the proto files.
#include "client/schema/json_schema.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/spec/fields.h"
#include "trainyard/v1/annotations.pb.h"

namespace trainyard::schema {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;
using nlohmann::ordered_json;

constexpr char kDurationPattern[] =
    R"(^\s*[0-9]*\.?[0-9]+\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w)\s*$)";
constexpr char kIntervalPattern[] =
    R"(^\s*(auto|[0-9]*\.?[0-9]+\s*(epochs?|steps?|ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w))\s*$)";

constexpr char kByteSizePattern[] = R"(^\s*[0-9]*\.?[0-9]+\s*(B|kB|KiB|MB|MiB|GB|GiB|TB|TiB)\s*$)";

// Returns the comment before a message or a field, as one line.
template <typename T>
std::string Comment(const T& described) {
  google::protobuf::SourceLocation location;
  if (!described.GetSourceLocation(&location)) return "";
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(location.leading_comments, '\n')) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (!text.empty()) lines.emplace_back(text);
  }
  return absl::StrJoin(lines, " ");
}

// Returns true if a name such as `relu` is enough, because no field of the message must be given.
bool IsEnoughAlone(const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (spec::IsRequired(spec::RulesOf(*type.field(i)))) return false;
  }
  return true;
}

class Generator {
 public:
  ordered_json Generate(const Descriptor& root) {
    ordered_json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                           {"title", "Trainyard job spec"}};
    schema.update(MessageSchema(root));
    schema["definitions"] = std::move(definitions_);
    return schema;
  }

 private:
  ordered_json MessageSchema(const Descriptor& type);
  ordered_json FieldSchema(const FieldDescriptor& field);
  ordered_json ElementSchema(const FieldDescriptor& field);
  ordered_json SubmessageSchema(const FieldDescriptor& field);
  ordered_json Reference(const Descriptor& type);

  ordered_json definitions_ = ordered_json::object();
};

ordered_json Generator::Reference(const Descriptor& type) {
  if (!definitions_.contains(type.name())) {
    definitions_[type.name()] = nullptr;  // ends endless recursion, and keeps the order
    definitions_[type.name()] = MessageSchema(type);
  }
  return {{"$ref", absl::StrCat("#/definitions/", type.name())}};
}

ordered_json Generator::MessageSchema(const Descriptor& type) {
  ordered_json schema;
  if (const std::string comment = Comment(type); !comment.empty()) schema["description"] = comment;
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  ordered_json properties = ordered_json::object();
  ordered_json required = ordered_json::array();
  std::map<std::string, ordered_json> required_unless;  // by the field in whose place they stand
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const v1::FieldRules& rules = spec::RulesOf(field);
    if (rules.output_only()) continue;
    properties[field.name()] = FieldSchema(field);
    if (rules.required() && field.real_containing_oneof() == nullptr) {
      required.push_back(field.name());
    }
    if (!rules.required_unless().empty()) {
      required_unless[rules.required_unless()].push_back(field.name());
    }
  }
  schema["properties"] = std::move(properties);
  if (!required.empty()) schema["required"] = std::move(required);
  ordered_json all = ordered_json::array();
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    const OneofDescriptor& oneof = *type.oneof_decl(i);
    ordered_json choices = ordered_json::array();
    ordered_json any = ordered_json::array();
    for (int j = 0; j < oneof.field_count(); ++j) {
      const ordered_json given = {{"required", {oneof.field(j)->name()}}};
      choices.push_back(given);
      any.push_back(given);
    }
    if (!oneof.options().GetExtension(v1::required_oneof)) {
      choices.push_back({{"not", {{"anyOf", std::move(any)}}}});
    }
    all.push_back({{"oneOf", std::move(choices)}});
  }
  for (auto& [other, fields] : required_unless) {
    all.push_back({{"anyOf", {{{"required", {other}}}, {{"required", std::move(fields)}}}}});
  }
  if (!all.empty()) schema["allOf"] = std::move(all);
  return schema;
}

ordered_json Generator::FieldSchema(const FieldDescriptor& field) {
  const v1::FieldRules& rules = spec::RulesOf(field);
  ordered_json schema;
  if (const std::string comment = Comment(field); !comment.empty()) {
    schema["description"] = comment;
  }
  if (field.is_map()) {
    const std::string& keys = rules.key_pattern().empty() ? rules.pattern() : rules.key_pattern();
    schema["type"] = "object";
    schema["propertyNames"] = {{"pattern", absl::StrCat("^(?:", keys, ")$")}};
    if (rules.json_values()) {
      schema["additionalProperties"] = true;
    } else if (rules.pattern().empty()) {
      schema["additionalProperties"] = {{"type", {"string", "number", "boolean"}}};
    } else {
      schema["additionalProperties"] = {{"type", "string"},
                                        {"pattern", absl::StrCat("^(?:", rules.pattern(), ")$")}};
    }
    if (rules.max_length() > 0) schema["maxProperties"] = rules.max_length();
  } else if (field.is_repeated()) {
    schema["type"] = "array";
    schema["items"] = ElementSchema(field);
    if (rules.min_length() > 0) schema["minItems"] = rules.min_length();
    if (rules.max_length() > 0) schema["maxItems"] = rules.max_length();
  } else {
    schema.update(ElementSchema(field));
  }
  if (!rules.default_json().empty()) schema["default"] = ordered_json::parse(rules.default_json());
  return schema;
}

// Returns a number as in the proto file: whole numbers have no fraction.
ordered_json Number(double value) {
  const auto whole = static_cast<int64_t>(value);
  if (static_cast<double>(whole) == value) return whole;
  return value;
}

ordered_json Generator::ElementSchema(const FieldDescriptor& field) {
  const v1::FieldRules& rules = spec::RulesOf(field);
  ordered_json schema;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      schema["type"] = "boolean";
      return schema;
    case FieldDescriptor::CPPTYPE_ENUM:
      schema["enum"] = spec::EnumTexts(*field.enum_type());
      return schema;
    case FieldDescriptor::CPPTYPE_STRING:
      schema["type"] = "string";
      if (rules.one_of_size() > 0) {
        schema["enum"] = std::vector<std::string>(rules.one_of().begin(), rules.one_of().end());
      }
      if (!rules.pattern().empty()) schema["pattern"] = absl::StrCat("^(?:", rules.pattern(), ")$");
      if (!field.is_repeated() && rules.min_length() > 0) schema["minLength"] = rules.min_length();
      if (!field.is_repeated() && rules.max_length() > 0) schema["maxLength"] = rules.max_length();
      return schema;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SubmessageSchema(field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      schema["type"] = "number";
      break;
    default:
      schema["type"] = "integer";
      break;
  }
  for (const double choice : rules.one_of_numbers()) schema["enum"].push_back(Number(choice));
  if (rules.has_min()) {
    schema[rules.min_exclusive() ? "exclusiveMinimum" : "minimum"] = Number(rules.min());
  }
  if (rules.has_max()) {
    schema[rules.max_exclusive() ? "exclusiveMaximum" : "maximum"] = Number(rules.max());
  }
  return schema;
}

ordered_json Generator::SubmessageSchema(const FieldDescriptor& field) {
  const Descriptor& type = *field.message_type();
  if (type.full_name() == "google.protobuf.Duration") {
    return {{"type", "string"}, {"pattern", kDurationPattern}};
  }
  if (type.full_name() == "trainyard.v1.ByteSize") {
    return {{"type", "string"}, {"pattern", kByteSizePattern}};
  }
  if (type.full_name() == "trainyard.v1.Interval") {
    return {{"type", "string"}, {"pattern", kIntervalPattern}};
  }
  ordered_json choices = ordered_json::array();
  choices.push_back(Reference(type));
  // The form `devices: 4`.
  const std::string& shorthand = type.options().GetExtension(v1::shorthand);
  if (!shorthand.empty()) choices.push_back(ElementSchema(*type.FindFieldByName(shorthand)));
  // The form `schedule: cosine`.
  std::vector<std::string> words;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& member = *type.field(i);
    if (member.real_containing_oneof() != nullptr &&
        member.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
        IsEnoughAlone(*member.message_type())) {
      words.push_back(member.name());
    }
  }
  if (!words.empty()) choices.push_back({{"enum", words}});
  // The form `cosine:` with nothing after it.
  if (field.real_containing_oneof() != nullptr) choices.push_back({{"type", "null"}});
  // The reference is always wrapped, since draft 7 ignores what stands beside a $ref, and the
  // description must stay.
  return {{"anyOf", std::move(choices)}};
}

}  // namespace

absl::StatusOr<std::string> JobSpecSchema(absl::string_view descriptors) {
  google::protobuf::FileDescriptorSet files;
  if (!files.ParseFromArray(descriptors.data(), static_cast<int>(descriptors.size()))) {
    return absl::InvalidArgumentError("the descriptors are not a FileDescriptorSet");
  }
  DescriptorPool pool;
  for (const auto& file : files.file()) {
    if (pool.BuildFile(file) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("cannot build ", file.name()));
    }
  }
  const Descriptor* root = pool.FindMessageTypeByName("trainyard.v1.JobSpec");
  if (root == nullptr) return absl::NotFoundError("the descriptors have no trainyard.v1.JobSpec");
  return Generator().Generate(*root).dump(2) + "\n";
}

}  // namespace trainyard::schema
