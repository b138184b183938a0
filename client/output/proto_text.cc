// Prints messages as JSON, and makes YAML from that JSON, so that both use the same names. It does
// not use protobuf's own JSON, in which numbers are texts, and specs cannot be submitted again.
#include "client/output/proto_text.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::output {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
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

// Returns true for a text of several lines that YAML can show as they are.
bool IsBlockText(const ordered_json& value) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  const bool is_odd = std::any_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\n' && c != '\t';
  });
  return !is_odd && text.find('\n') != std::string::npos && text.front() != ' ' &&
         text.front() != '\n' && text.front() != '\t' && !absl::EndsWith(text, "\n\n");
}

void AppendBlockText(const std::string& text, size_t indent, std::string& out) {
  const bool has_end = absl::EndsWith(text, "\n");
  absl::StrAppend(&out, has_end ? " |\n" : " |-\n");
  const std::string space(indent, ' ');
  for (const absl::string_view line :
       absl::StrSplit(has_end ? absl::string_view(text).substr(0, text.size() - 1) : text, '\n')) {
    absl::StrAppend(&out, line.empty() ? "" : space, line, "\n");
  }
}

// Writes the value after `key:` or `-`.
void AppendValue(const ordered_json& value, size_t indent, std::string& out) {
  if (IsBlockText(value)) {
    AppendBlockText(value.get_ref<const std::string&>(), indent + 2, out);
    return;
  }
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

// Returns a spec in the form that people write, with its fields in the order of their declaration.
ordered_json SpecJson(const v1::JobSpec& spec) {
  ordered_json json = ordered_json::object();
  const google::protobuf::Descriptor& type = *v1::JobSpec::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string value = spec::FieldJson(spec, *type.field(i));
    if (!value.empty()) json[type.field(i)->name()] = ordered_json::parse(value);
  }
  return json;
}

// Every reader of JSON keeps whole numbers up to 2^53 exactly. Larger ones become texts, as in
// protobuf's JSON.
template <typename T>
ordered_json WholeJson(T value) {
  constexpr T kExactMax = T{1} << 53;
  bool is_exact = value <= kExactMax;
  if constexpr (std::is_signed_v<T>) is_exact = is_exact && value >= -kExactMax;
  return is_exact ? ordered_json(value) : ordered_json(absl::StrCat(value));
}

ordered_json NumberJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

ordered_json MessageJson(const Message& message);

// Returns the value at `index` of a repeated field, or of a single field if the index is -1.
ordered_json ValueJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto pick = [&](auto single, auto repeated) {
    return index < 0 ? (reflection.*single)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return pick(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_UINT32:
      return pick(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return WholeJson(pick(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT64:
      return WholeJson(pick(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberJson(pick(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberJson(pick(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
    case FieldDescriptor::CPPTYPE_BOOL:
      return pick(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = pick(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue);
      const auto* value = field.enum_type()->FindValueByNumber(number);
      return value == nullptr ? ordered_json(number) : ordered_json(value->name());
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = pick(&Reflection::GetString, &Reflection::GetRepeatedString);
      return field.type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageJson(index < 0 ? reflection.GetMessage(message, &field)
                                   : reflection.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

// Returns the entries of a map in the order of their keys.
ordered_json MapJson(const Message& message, const FieldDescriptor& field) {
  std::map<std::string, ordered_json> entries;
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const ordered_json key = ValueJson(entry, *field.message_type()->map_key(), -1);
    entries[key.is_string() ? key.get<std::string>() : key.dump()] =
        ValueJson(entry, *field.message_type()->map_value(), -1);
  }
  return ordered_json(entries);
}

// Returns the fields that are shown: those that are set, and all numbers of a point of a metric,
// since 0 has been measured there like any other value.
std::vector<const FieldDescriptor*> FieldsOf(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  if (message.GetDescriptor() != v1::MetricPoint::descriptor()) return fields;
  fields.clear();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const bool is_number = !field->has_presence();
    if (is_number || message.GetReflection()->HasField(message, field)) fields.push_back(field);
  }
  return fields;
}

ordered_json MessageJson(const Message& message) {
  if (const auto* spec = dynamic_cast<const v1::JobSpec*>(&message)) return SpecJson(*spec);
  if (message.GetDescriptor()->file()->package() == "google.protobuf") {
    return ordered_json::parse(WireJson(message));  // a form of its own for times and durations
  }
  ordered_json json = ordered_json::object();
  for (const FieldDescriptor* field : FieldsOf(message)) {
    ordered_json& value = json[field->name()];
    if (field->is_map()) {
      value = MapJson(message, *field);
    } else if (field->is_repeated()) {
      value = ordered_json::array();
      const int size = message.GetReflection()->FieldSize(message, field);
      for (int i = 0; i < size; ++i) value.push_back(ValueJson(message, *field, i));
    } else {
      value = ValueJson(message, *field, -1);
    }
  }
  return json;
}

}  // namespace

std::string ProtoJson(const google::protobuf::Message& message, bool indented) {
  const ordered_json json = MessageJson(message);
  // Texts of messages are UTF-8. Whatever is not comes out as U+FFFD.
  const auto errors = ordered_json::error_handler_t::replace;
  return indented ? json.dump(1, ' ', false, errors) + "\n" : json.dump(-1, ' ', false, errors);
}

std::string WireJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
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
  return JsonToYaml(SpecJson(spec).dump());
}

}  // namespace trainyard::output
