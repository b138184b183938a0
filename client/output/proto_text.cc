// Prints messages as JSON with protobuf, and makes YAML from that JSON, so that both use the same
// names.
#include "client/output/proto_text.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"

namespace trainyard::output {
namespace {

using nlohmann::ordered_json;

// Returns true if YAML reads the text back as the same text without quotes.
bool IsPlain(const std::string& text) {
  if (text.empty()) return false;
  const auto is_word = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
           c == '/' || c == ' ' || c == '+';
  };
  for (const char c : text) {
    if (!is_word(c)) return false;
  }
  if (text.front() == ' ' || text.back() == ' ' || text.front() == '-') return false;
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "~"}) {
    if (lower == word) return false;
  }
  // These texts are numbers, or old YAML readers take them for numbers.
  const bool has_number_start = absl::ascii_isdigit(static_cast<unsigned char>(text.front())) ||
                                text.front() == '.' || text.front() == '+';
  return !has_number_start || text.find(' ') != std::string::npos;
}

std::string ScalarYaml(const ordered_json& value) {
  if (!value.is_string()) return value.dump();
  const std::string& text = value.get_ref<const std::string&>();
  return IsPlain(text) ? text : JsonQuote(text);
}

bool IsFlowList(const ordered_json& value) {
  for (const ordered_json& element : value) {
    if (element.is_structured()) return false;
  }
  return true;
}

std::string FlowList(const ordered_json& value) {
  std::vector<std::string> elements;
  for (const ordered_json& element : value) elements.push_back(ScalarYaml(element));
  return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
}

void AppendYaml(const ordered_json& value, size_t indent, std::string& out);

// Writes the value after `key:` or `-`.
void AppendValue(const ordered_json& value, size_t indent, std::string& out) {
  const bool is_block = value.is_object() ? !value.empty() : value.is_array() && !IsFlowList(value);
  if (is_block) {
    absl::StrAppend(&out, "\n");
    AppendYaml(value, indent + 2, out);
  } else if (value.is_object()) {
    absl::StrAppend(&out, " {}\n");
  } else if (value.is_array()) {
    absl::StrAppend(&out, " ", FlowList(value), "\n");
  } else {
    absl::StrAppend(&out, " ", ScalarYaml(value), "\n");
  }
}

void AppendYaml(const ordered_json& value, size_t indent, std::string& out) {
  const std::string space(indent, ' ');
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      absl::StrAppend(&out, space, IsPlain(key) ? key : JsonQuote(key), ":");
      AppendValue(member, indent, out);
    }
    return;
  }
  if (!value.is_array()) {
    absl::StrAppend(&out, space, ScalarYaml(value), "\n");
    return;
  }
  for (const ordered_json& element : value) {
    if (!element.is_object() || element.empty()) {
      absl::StrAppend(&out, space, "-");
      AppendValue(element, indent, out);
      continue;
    }
    // The first member of an object stands beside the dash.
    std::string block;
    AppendYaml(element, indent + 2, block);
    block[indent] = '-';
    out += block;
  }
}

}  // namespace

std::string ProtoJson(const google::protobuf::Message& message, bool indented) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.add_whitespace = indented;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  TY_CHECK(status.ok());
  return json;
}

std::string JsonToYaml(absl::string_view json) {
  const ordered_json value =
      ordered_json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return std::string(json);
  if (value.is_object() && value.empty()) return "{}\n";
  if (value.is_array() && value.empty()) return "[]\n";
  std::string out;
  AppendYaml(value, 0, out);
  return out;
}

std::string SpecYaml(const v1::JobSpec& spec) {
  std::vector<std::string> members;
  const google::protobuf::Descriptor& type = *v1::JobSpec::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string value = spec::FieldJson(spec, *type.field(i));
    if (value.empty()) continue;
    members.push_back(absl::StrCat(JsonQuote(type.field(i)->name()), ":", value));
  }
  return JsonToYaml(absl::StrCat("{", absl::StrJoin(members, ","), "}"));
}

}  // namespace trainyard::output
