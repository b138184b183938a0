// Converts values of fields to and from JSON, by reflection. It does not use protobuf's own JSON,
// since people write enum values, intervals, durations and sizes in another way.
#include "common/spec/fields.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/byte_size.h"
#include "common/spec/interval.h"
#include "common/spec/json_values.h"
#include "common/spec/parse_json.h"

namespace trainyard::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;

bool IsSpanType(const Descriptor& type) {
  return &type == v1::Interval::descriptor() || &type == google::protobuf::Duration::descriptor() ||
         &type == v1::ByteSize::descriptor();
}

// Returns the prefix of an enum's values: "NORMALIZE_" for the enum Normalize.
std::string EnumPrefix(const EnumDescriptor& type) {
  std::string prefix;
  for (const char c : type.name()) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + "_";
}

std::string EnumText(const EnumValueDescriptor& value) {
  const std::string prefix = EnumPrefix(*value.type());
  absl::string_view name = value.name();
  if (absl::StartsWith(name, prefix)) name.remove_prefix(prefix.size());
  return absl::AsciiStrToLower(name);
}

// Returns the shortest text that reads back as the same number.
std::string DoubleJson(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

std::string MessageJson(const Message& message) {
  if (const auto* interval = dynamic_cast<const v1::Interval*>(&message)) {
    return JsonQuote(IntervalText(*interval));
  }
  if (const auto* duration = dynamic_cast<const google::protobuf::Duration*>(&message)) {
    return JsonQuote(PlainDurationText(FromProto(*duration)));
  }
  if (const auto* size = dynamic_cast<const v1::ByteSize*>(&message)) {
    return JsonQuote(ByteSizeText(*size));
  }
  std::vector<std::string> members;
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    if (!IsGiven(message, *type.field(i))) continue;
    members.push_back(
        absl::StrCat(JsonQuote(type.field(i)->name()), ": ", FieldJson(message, *type.field(i))));
  }
  return absl::StrCat("{", absl::StrJoin(members, ", "), "}");
}

// Returns the value at `index` of a repeated field, or of a single field if the index is -1.
std::string ElementJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto pick = [&](auto single, auto repeated) {
    return index < 0 ? (reflection.*single)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(pick(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(pick(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(pick(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(pick(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return DoubleJson(pick(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return DoubleJson(
          static_cast<double>(pick(&Reflection::GetFloat, &Reflection::GetRepeatedFloat)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return pick(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = pick(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue);
      const EnumValueDescriptor* value = field.enum_type()->FindValueByNumber(number);
      return value == nullptr ? absl::StrCat(number) : JsonQuote(EnumText(*value));
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return JsonQuote(pick(&Reflection::GetString, &Reflection::GetRepeatedString));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageJson(index < 0 ? reflection.GetMessage(message, &field)
                                   : reflection.GetRepeatedMessage(message, &field, index));
  }
  return "";
}

// Reads a whole number within the limits of T. JSON writes 2^53 and above as integers, so no digit
// is lost.
template <typename T>
absl::StatusOr<T> ToWhole(const json& value, absl::string_view path) {
  constexpr auto kMin = std::numeric_limits<T>::min();
  constexpr auto kMax = std::numeric_limits<T>::max();
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(kMax)) return static_cast<T>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (number >= 0 || (kMin < 0 && number >= static_cast<int64_t>(kMin))) {
      return static_cast<T>(number);
    }
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    // People write whole numbers such as 1e6. A double holds integers exactly up to 2^53.
    if (std::trunc(number) == number && std::abs(number) <= 9007199254740992.0 &&
        number >= static_cast<double>(kMin) && number <= static_cast<double>(kMax)) {
      return static_cast<T>(number);
    }
  }
  return FieldError(path, absl::StrCat(value.dump(), " is not accepted; expected a whole number",
                                       kMin < 0 ? "" : ", 0 or more"));
}

absl::StatusOr<int> ToEnum(const json& value, const FieldDescriptor& field,
                           absl::string_view path) {
  const EnumDescriptor& type = *field.enum_type();
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0 && EnumText(*type.value(i)) == text) {
      return type.value(i)->number();
    }
  }
  return FieldError(
      path, absl::StrCat("'", text, "' is not accepted", Suggestion(text, EnumTexts(type))));
}

absl::Status SetMessage(Message& message, const json& value, absl::string_view path);

// Sets a single field, or appends to a repeated one.
absl::Status PutElement(Message& message, const FieldDescriptor& field, const json& value,
                        absl::string_view path) {
  const Reflection& reflection = *message.GetReflection();
  const auto put = [&](auto set, auto add, auto element) {
    if (field.is_repeated()) {
      (reflection.*add)(&message, &field, element);
    } else {
      (reflection.*set)(&message, &field, element);
    }
    return absl::OkStatus();
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      TY_ASSIGN_OR_RETURN(const auto number, ToWhole<int32_t>(value, path));
      return put(&Reflection::SetInt32, &Reflection::AddInt32, number);
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      TY_ASSIGN_OR_RETURN(const auto number, ToWhole<int64_t>(value, path));
      return put(&Reflection::SetInt64, &Reflection::AddInt64, number);
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      TY_ASSIGN_OR_RETURN(const auto number, ToWhole<uint32_t>(value, path));
      return put(&Reflection::SetUInt32, &Reflection::AddUInt32, number);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      TY_ASSIGN_OR_RETURN(const auto number, ToWhole<uint64_t>(value, path));
      return put(&Reflection::SetUInt64, &Reflection::AddUInt64, number);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      if (!value.is_number()) {
        return FieldError(path, absl::StrCat(value.dump(), " is not accepted; expected a number"));
      }
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
        return put(&Reflection::SetFloat, &Reflection::AddFloat, value.get<float>());
      }
      return put(&Reflection::SetDouble, &Reflection::AddDouble, value.get<double>());
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!value.is_boolean()) {
        return FieldError(path,
                          absl::StrCat(value.dump(), " is not accepted; expected true or false"));
      }
      return put(&Reflection::SetBool, &Reflection::AddBool, value.get<bool>());
    case FieldDescriptor::CPPTYPE_ENUM: {
      TY_ASSIGN_OR_RETURN(const int number, ToEnum(value, field, path));
      return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, number);
    }
    case FieldDescriptor::CPPTYPE_STRING:
      // In a text field, 12 or true stands for its text.
      return put(&Reflection::SetString, &Reflection::AddString,
                 value.is_string() ? value.get<std::string>() : value.dump());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SetMessage(field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                            : *reflection.MutableMessage(&message, &field),
                        value, path);
  }
  return FieldError(path, "cannot be set");
}

// In maps of texts, the given entries replace all others.
absl::Status SetMap(Message& message, const FieldDescriptor& field, const json& value,
                    absl::string_view path) {
  if (!value.is_object()) {
    return FieldError(path, absl::StrCat(value.dump(),
                                         " is not accepted; expected names and values, "
                                         "such as {zone: a}"));
  }
  for (const auto& [key, element] : value.items()) {
    if (RulesOf(field).json_values()) {
      SetMapEntry(message, field, key,
                  element.is_string() ? ValueOfText(element.get<std::string>()) : element.dump());
      continue;
    }
    if (element.is_structured() || element.is_null()) {
      return FieldError(JoinFieldPath(path, key),
                        absl::StrCat(element.dump(), " is not accepted; expected a text"));
    }
    SetMapEntry(message, field, key,
                element.is_string() ? element.get<std::string>() : element.dump());
  }
  return absl::OkStatus();
}

absl::Status SetField(Message& message, const FieldDescriptor& field, const json& value,
                      absl::string_view path) {
  message.GetReflection()->ClearField(&message, &field);
  if (value.is_null()) return absl::OkStatus();
  if (field.is_map()) return SetMap(message, field, value, path);
  if (!field.is_repeated()) return PutElement(message, field, value, path);
  if (!value.is_array()) {
    return FieldError(
        path, absl::StrCat(value.dump(), " is not accepted; expected a list, such as [32, 64]"));
  }
  int index = 0;
  for (const json& element : value) {
    TY_RETURN_IF_ERROR(PutElement(message, field, element, absl::StrCat(path, "[", index++, "]")));
  }
  return absl::OkStatus();
}

// Intervals, durations and sizes are texts as people write them.
absl::Status SetSpan(Message& message, const json& value, absl::string_view path) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (auto* interval = dynamic_cast<v1::Interval*>(&message)) {
    auto parsed = ParseInterval(text);
    if (!parsed.ok()) return FieldError(path, parsed.status().message());
    *interval = *std::move(parsed);
    return absl::OkStatus();
  }
  if (auto* size = dynamic_cast<v1::ByteSize*>(&message)) {
    auto parsed = ParseByteSize(text);
    if (!parsed.ok()) return FieldError(path, parsed.status().message());
    *size = *std::move(parsed);
    return absl::OkStatus();
  }
  const auto parsed = ParseDuration(text);
  if (!parsed.ok()) return FieldError(path, parsed.status().message());
  message.CopyFrom(ToProto(*parsed));
  return absl::OkStatus();
}

absl::Status SetMessage(Message& message, const json& value, absl::string_view path) {
  const Descriptor& type = *message.GetDescriptor();
  if (IsSpanType(type) && !value.is_object()) return SetSpan(message, value, path);
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      const FieldDescriptor* field = type.FindFieldByName(key);
      if (field == nullptr) {
        return FieldError(JoinFieldPath(path, key),
                          absl::StrCat("no such field", Suggestion(key, FieldNames(type))));
      }
      TY_RETURN_IF_ERROR(SetField(message, *field, member, JoinFieldPath(path, key)));
    }
    return absl::OkStatus();
  }
  if (value.is_string()) {  // `schedule: cosine`
    const FieldDescriptor* field = type.FindFieldByName(value.get<std::string>());
    if (field != nullptr && field->real_containing_oneof() != nullptr && IsSubmessage(*field)) {
      message.GetReflection()->MutableMessage(&message, field);
      return absl::OkStatus();
    }
  }
  const std::string& shorthand = type.options().GetExtension(v1::shorthand);
  if (const FieldDescriptor* field = type.FindFieldByName(shorthand)) {
    return SetField(message, *field, value, JoinFieldPath(path, shorthand));
  }
  return FieldError(path, absl::StrCat(value.dump(), " is not accepted; expected the fields ",
                                       absl::StrJoin(FieldNames(type), ", ")));
}

}  // namespace

const v1::FieldRules& RulesOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::rules);
}

bool IsSpan(const FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         IsSpanType(*field.message_type());
}

bool IsSubmessage(const FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         !IsSpan(field);
}

bool IsMessageList(const FieldDescriptor& field) {
  return field.is_repeated() && !field.is_map() &&
         field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

bool IsGiven(const Message& message, const FieldDescriptor& field) {
  // Without presence, HasField tells whether the value differs from zero.
  return field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) > 0
                             : message.GetReflection()->HasField(message, &field);
}

bool IsRequired(const v1::FieldRules& rules) {
  return rules.required() || !rules.required_unless().empty();
}

std::map<std::string, std::string> MapEntries(const Message& message,
                                              const FieldDescriptor& field) {
  std::map<std::string, std::string> entries;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, i);
    const Reflection& reflection = *entry.GetReflection();
    const Descriptor& type = *entry.GetDescriptor();
    entries[reflection.GetString(entry, type.map_key())] =
        reflection.GetString(entry, type.map_value());
  }
  return entries;
}

void SetMapEntry(Message& message, const FieldDescriptor& field, const std::string& key,
                 const std::string& value) {
  const Reflection& reflection = *message.GetReflection();
  std::map<std::string, std::string> entries = MapEntries(message, field);
  entries[key] = value;
  reflection.ClearField(&message, &field);
  for (const auto& [name, text] : entries) {
    Message& entry = *reflection.AddMessage(&message, &field);
    const Descriptor& type = *entry.GetDescriptor();
    entry.GetReflection()->SetString(&entry, type.map_key(), name);
    entry.GetReflection()->SetString(&entry, type.map_value(), text);
  }
}

std::string FieldJson(const Message& message, const FieldDescriptor& field) {
  if (!IsGiven(message, field)) return "";
  if (!field.is_repeated()) return ElementJson(message, field, -1);
  std::vector<std::string> elements;
  if (field.is_map()) {
    for (const auto& [key, value] : MapEntries(message, field)) {
      elements.push_back(
          absl::StrCat(JsonQuote(key), ": ",
                       RulesOf(field).json_values() ? JsonOfValue(value) : JsonQuote(value)));
    }
    return absl::StrCat("{", absl::StrJoin(elements, ", "), "}");
  }
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    elements.push_back(ElementJson(message, field, i));
  }
  return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
}

absl::Status SetFieldJson(Message& message, const FieldDescriptor& field, absl::string_view text,
                          absl::string_view path) {
  // A text that begins like JSON is a typing mistake, and not a bare word.
  const bool is_word =
      !absl::StartsWith(text, "[") && !absl::StartsWith(text, "{") && !absl::StartsWith(text, "\"");
  const std::optional<json> parsed = ParseJson(text);
  if (!parsed.has_value() && !is_word) {
    return FieldError(path,
                      absl::StrCat("'", text.substr(0, 200), "' is not valid JSON of at most ",
                                   kJsonDepthMax, " levels"));
  }
  const json value = parsed.has_value() ? *parsed : json(std::string(text));
  // dump() throws on text that is not UTF-8. No text field accepts such bytes either.
  if (value.is_string() &&
      JsonQuote(value.get<std::string>()).find("\xef\xbf\xbd") != std::string::npos) {
    return FieldError(path, "the value is not UTF-8 text");
  }
  return SetField(message, field, value, path);
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type.field_count()));
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

std::vector<std::string> EnumTexts(const EnumDescriptor& type) {
  std::vector<std::string> texts;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) texts.push_back(EnumText(*type.value(i)));
  }
  return texts;
}

absl::Status FieldError(absl::string_view field, absl::string_view description) {
  absl::Status status = MakeError(absl::StatusCode::kInvalidArgument, error::kInvalidSpec,
                                  absl::StrCat(field, ": ", description));
  SetFieldViolations(status, {{std::string(field), std::string(description)}});
  return status;
}

std::string Suggestion(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = NearestWord(word, candidates);
  if (!nearest.empty()) return absl::StrCat("; did you mean '", nearest, "'?");
  if (candidates.empty()) return "";
  return absl::StrCat("; expected one of ", absl::StrJoin(candidates, ", "));
}

std::string JoinFieldPath(absl::string_view path, absl::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
}

}  // namespace trainyard::spec
