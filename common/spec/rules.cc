// Walks a message by reflection and checks each field against the rules that stand beside it in the
// proto file.
#include "common/spec/rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"
#include "common/spec/interval.h"

namespace trainyard::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

// std::regex recurses over the text. A text that is longer than any name is not matched at all.
constexpr size_t kPatternMaxBytes = 1024;
// Messages quote values up to this length.
constexpr size_t kQuoteMaxBytes = 80;

// Collects the violations of one walk.
class Walk {
 public:
  void Check(const Message& message, const std::string& path);
  std::vector<FieldViolation> Take() && { return std::move(violations_); }

 private:
  void Add(const std::string& path, std::string description) {
    violations_.push_back({path, std::move(description)});
  }
  void CheckOneof(const Message& message, const OneofDescriptor& oneof, const std::string& path);
  void CheckField(const Message& message, const FieldDescriptor& field, const std::string& path);
  void CheckElement(const Message& message, const FieldDescriptor& field, int index,
                    const std::string& path);
  void CheckText(const std::string& text, const v1::FieldRules& rules, const std::string& path);
  void CheckPattern(const std::string& text, const v1::FieldRules& rules, const std::string& path);
  void CheckNumber(double value, const std::string& text, const v1::FieldRules& rules,
                   const std::string& path);
  void CheckDuration(const Message& message, const v1::FieldRules& rules, const std::string& path);

  std::vector<FieldViolation> violations_;
};

// Compiling a pattern takes a hundred times as long as matching a name. The proto files have only a
// few patterns, so they are kept.
const std::regex& Compiled(const std::string& pattern) {
  static Mutex mutex;
  static auto* known = new absl::flat_hash_map<std::string, std::unique_ptr<const std::regex>>;
  const MutexLock lock(&mutex);
  std::unique_ptr<const std::regex>& compiled = (*known)[pattern];
  if (compiled == nullptr) compiled = std::make_unique<const std::regex>(pattern);
  return *compiled;
}

std::string Shown(const std::string& text) {
  return text.size() <= kQuoteMaxBytes ? absl::StrCat("'", text, "'")
                                       : absl::StrCat("'", text.substr(0, kQuoteMaxBytes), "...'");
}

// Writes whole numbers without an exponent: "1000000", not "1e+06".
std::string NumberText(double value) {
  if (std::trunc(value) == value && std::abs(value) < 9e15) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  return absl::StrCat(value);
}

// Returns a text such as "at least 1 and at most 64" or "above 0".
std::string RangeText(const v1::FieldRules& rules) {
  std::vector<std::string> parts;
  if (rules.has_min()) {
    parts.push_back(
        absl::StrCat(rules.min_exclusive() ? "above " : "at least ", NumberText(rules.min())));
  }
  if (rules.has_max()) {
    parts.push_back(
        absl::StrCat(rules.max_exclusive() ? "below " : "at most ", NumberText(rules.max())));
  }
  return absl::StrJoin(parts, " and ");
}

std::string LengthText(const v1::FieldRules& rules, absl::string_view unit) {
  if (rules.min_length() == rules.max_length()) {
    return absl::StrCat("exactly ", rules.min_length(), " ", unit);
  }
  if (rules.min_length() > 0 && rules.max_length() > 0) {
    return absl::StrCat(rules.min_length(), " to ", rules.max_length(), " ", unit);
  }
  return rules.min_length() > 0 ? absl::StrCat("at least ", rules.min_length(), " ", unit)
                                : absl::StrCat("at most ", rules.max_length(), " ", unit);
}

bool HasLength(size_t length, const v1::FieldRules& rules) {
  return length >= rules.min_length() && (rules.max_length() == 0 || length <= rules.max_length());
}

// Returns true if the field must be given in this message.
bool IsNeeded(const Message& message, const v1::FieldRules& rules) {
  if (rules.required_unless().empty()) return rules.required();
  const FieldDescriptor* other = message.GetDescriptor()->FindFieldByName(rules.required_unless());
  TY_CHECK(other != nullptr);
  return !IsGiven(message, *other);
}

void Walk::Check(const Message& message, const std::string& path) {
  const Descriptor& type = *message.GetDescriptor();
  const int unknown = message.GetReflection()->GetUnknownFields(message).field_count();
  if (unknown > 0) {
    // If a setting were ignored, the job would train something else than the user asked for.
    Add(path, absl::StrCat("has ", unknown, unknown == 1 ? " field" : " fields",
                           " that this version does not know; the sender is newer"));
  }
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    CheckOneof(message, *type.oneof_decl(i), path);
  }
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    // Most fields are neither given nor required, so no path is made for them.
    const v1::FieldRules& rules = RulesOf(field);
    if (!IsGiven(message, field) && !IsNeeded(message, rules) && rules.min_length() == 0) continue;
    CheckField(message, field, JoinFieldPath(path, field.name()));
  }
}

void Walk::CheckOneof(const Message& message, const OneofDescriptor& oneof,
                      const std::string& path) {
  if (message.GetReflection()->HasOneof(message, &oneof)) return;
  std::vector<std::string> members;
  members.reserve(static_cast<size_t>(oneof.field_count()));
  for (int i = 0; i < oneof.field_count(); ++i) members.push_back(oneof.field(i)->name());
  if (message.GetDescriptor() == v1::Interval::descriptor()) {
    Add(path, "is an interval without a span; write one such as '1 epoch' or '500 steps'");
  } else if (oneof.options().GetExtension(v1::required_oneof)) {
    Add(path, absl::StrCat("must have one of ", absl::StrJoin(members, ", ")));
  }
}

void Walk::CheckField(const Message& message, const FieldDescriptor& field,
                      const std::string& path) {
  const v1::FieldRules& rules = RulesOf(field);
  if (!IsGiven(message, field)) {
    if (IsNeeded(message, rules)) {
      Add(path, rules.required_unless().empty()
                    ? "must be given"
                    : absl::StrCat("must be given, or ", rules.required_unless(), " in its place"));
    } else if (field.is_repeated() && rules.min_length() > 0 && rules.default_json().empty()) {
      Add(path, absl::StrCat("must be given, with ", LengthText(rules, "elements")));
    }
    return;
  }
  if (rules.output_only()) {
    Add(path, "is written by the server; leave it out");
    return;
  }
  if (!field.is_repeated()) {
    CheckElement(message, field, -1, path);
    return;
  }
  const int size = message.GetReflection()->FieldSize(message, &field);
  if (!HasLength(static_cast<size_t>(size), rules)) {
    Add(path, absl::StrCat("has ", size, size == 1 ? " element" : " elements", "; expected ",
                           LengthText(rules, "elements")));
    return;
  }
  if (field.is_map()) {
    v1::FieldRules of_keys = rules;
    if (!rules.key_pattern().empty()) of_keys.set_pattern(rules.key_pattern());
    for (const auto& [key, value] : MapEntries(message, field)) {
      const std::string entry_path = JoinFieldPath(path, key);
      CheckPattern(key, of_keys, entry_path);
      CheckPattern(value, rules, entry_path);
    }
    return;
  }
  for (int i = 0; i < size; ++i) {
    CheckElement(message, field, i, absl::StrCat(path, "[", i, "]"));
  }
}

void Walk::CheckElement(const Message& message, const FieldDescriptor& field, int index,
                        const std::string& path) {
  const Reflection& reflection = *message.GetReflection();
  const v1::FieldRules& rules = RulesOf(field);
  const auto pick = [&](auto single, auto repeated) {
    return index < 0 ? (reflection.*single)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  const auto whole = [&](auto value) {
    CheckNumber(static_cast<double>(value), absl::StrCat(value), rules, path);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return whole(pick(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return whole(pick(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return whole(pick(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return whole(pick(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = pick(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
      return CheckNumber(value, absl::StrCat(value), rules, path);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const float value = pick(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
      return CheckNumber(static_cast<double>(value), absl::StrCat(value), rules, path);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = pick(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue);
      if (field.enum_type()->FindValueByNumber(number) == nullptr) {
        Add(path, absl::StrCat("has the unknown value ", number, "; expected one of ",
                               absl::StrJoin(EnumTexts(*field.enum_type()), ", ")));
      }
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckText(pick(&Reflection::GetString, &Reflection::GetRepeatedString), rules, path);
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Message& element = index < 0 ? reflection.GetMessage(message, &field)
                                         : reflection.GetRepeatedMessage(message, &field, index);
      if (element.GetDescriptor() == google::protobuf::Duration::descriptor()) {
        return CheckDuration(element, rules, path);
      }
      return Check(element, path);
    }
  }
}

void Walk::CheckText(const std::string& text, const v1::FieldRules& rules,
                     const std::string& path) {
  if (!HasLength(text.size(), rules)) {
    Add(path, absl::StrCat(Shown(text), " has ", text.size(), " bytes; expected ",
                           LengthText(rules, "bytes")));
    return;
  }
  if (rules.one_of_size() > 0) {
    const std::vector<std::string> accepted(rules.one_of().begin(), rules.one_of().end());
    if (std::find(accepted.begin(), accepted.end(), text) == accepted.end()) {
      const std::string nearest = NearestWord(text, accepted);
      Add(path,
          absl::StrCat(Shown(text), " is not accepted; expected one of ",
                       absl::StrJoin(accepted, ", "),
                       nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
    }
  }
  CheckPattern(text, rules, path);
}

void Walk::CheckPattern(const std::string& text, const v1::FieldRules& rules,
                        const std::string& path) {
  if (rules.pattern().empty()) return;
  if (text.size() > kPatternMaxBytes || !std::regex_match(text, Compiled(rules.pattern()))) {
    Add(path,
        absl::StrCat(Shown(text), " is not accepted; expected text of the form ", rules.pattern()));
  }
}

void Walk::CheckNumber(double value, const std::string& text, const v1::FieldRules& rules,
                       const std::string& path) {
  if (!std::isfinite(value)) {
    Add(path, absl::StrCat(text, " is not accepted; expected a finite number"));
    return;
  }
  const bool too_small =
      rules.has_min() && (rules.min_exclusive() ? value <= rules.min() : value < rules.min());
  const bool too_large =
      rules.has_max() && (rules.max_exclusive() ? value >= rules.max() : value > rules.max());
  if (too_small || too_large) {
    Add(path, absl::StrCat(text, " is not accepted; expected ", RangeText(rules)));
    return;
  }
  const auto& choices = rules.one_of_numbers();
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    Add(path,
        absl::StrCat(text, " is not accepted; expected one of ", absl::StrJoin(choices, ", ")));
  }
  if (rules.has_step() && std::fmod(value - rules.min(), rules.step()) != 0) {
    Add(path, absl::StrCat(text, " is not accepted; expected ", rules.min(), ", ",
                           rules.min() + rules.step(), ", ", rules.min() + 2 * rules.step(),
                           " and so on"));
  }
}

// The limits of a duration are in seconds.
void Walk::CheckDuration(const Message& message, const v1::FieldRules& rules,
                         const std::string& path) {
  google::protobuf::Duration duration;
  duration.CopyFrom(message);
  const bool is_zero = duration.seconds() == 0 && duration.nanos() == 0;
  if (!is_zero && FromProto(duration) <= absl::ZeroDuration()) {
    Add(path,
        absl::StrCat(duration.seconds(), " s is not accepted; expected a duration of 0 or more"));
    return;
  }
  CheckNumber(absl::ToDoubleSeconds(FromProto(duration)), PlainDurationText(FromProto(duration)),
              rules, path);
}

}  // namespace

std::vector<FieldViolation> ValidateRules(const Message& message, absl::string_view path) {
  Walk walk;
  walk.Check(message, std::string(path));
  return std::move(walk).Take();
}

}  // namespace trainyard::spec
