// Walks along a path such as model.layers.stack[3].linear.features by reflection, and replaces the
// value at its end.
#include "common/spec/change.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/spec/fields.h"
#include "common/spec/json_values.h"
#include "common/spec/parse_json.h"

namespace trainyard::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;

// Splits "hidden[2]" into name and index. The index is -1 if there is none.
struct Segment {
  absl::string_view name;
  int index = -1;
};

std::optional<Segment> ParseSegment(absl::string_view text) {
  const size_t bracket = text.find('[');
  if (bracket == absl::string_view::npos) return Segment{text, -1};
  Segment segment = {text.substr(0, bracket), -1};
  const absl::string_view rest = text.substr(bracket + 1);
  if (rest.empty() || rest.back() != ']') return std::nullopt;
  if (!absl::SimpleAtoi(rest.substr(0, rest.size() - 1), &segment.index) || segment.index < 0) {
    return std::nullopt;
  }
  return segment;
}

absl::Status CheckIndex(const Message& message, const FieldDescriptor& field, int index,
                        const std::string& path) {
  const int size = field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) : 0;
  if (index < size) return absl::OkStatus();
  return FieldError(path, field.is_repeated()
                              ? absl::StrCat("the list has ", size, " elements, numbered from 0")
                              : std::string("is not a list"));
}

// Replaces one element by rewriting the whole list with it.
absl::Status SetElement(Message& message, const FieldDescriptor& field, int index,
                        absl::string_view value, const std::string& path) {
  TY_RETURN_IF_ERROR(CheckIndex(message, field, index, path));
  const bool is_message = IsMessageList(field);
  std::optional<json> element = ParseJson(value);
  // In `stack[3]=relu` and `from[0]=conv2d1`, values are bare words as in the file.
  const bool takes_words = is_message || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (!element.has_value() && takes_words && !value.empty()) element = std::string(value);
  if (!element.has_value() || element->is_structured() != (is_message && element->is_object())) {
    return FieldError(
        path, absl::StrCat("'", value.substr(0, 200), "' is not accepted; expected one value"));
  }
  auto list = json::parse(FieldJson(message, field), nullptr, /*allow_exceptions=*/false);
  TY_CHECK(list.is_array());
  list[static_cast<size_t>(index)] = *std::move(element);
  // SetFieldJson takes the path of the list, and names the element in its violations.
  return SetFieldJson(message, field, list.dump(), path.substr(0, path.rfind('[')));
}

// Sets an entry of a map, as in `devices.labels.zone=a`. An empty value removes the entry.
void SetOrEraseEntry(Message& message, const FieldDescriptor& field, const std::string& key,
                     absl::string_view value) {
  if (!value.empty() && RulesOf(field).json_values()) {
    SetMapEntry(message, field, key, ValueOfWord(value));
    return;
  }
  if (!value.empty()) {
    const std::optional<json> text = ParseJson(value);
    const bool is_text = text.has_value() && text->is_string();
    SetMapEntry(message, field, key, is_text ? text->get<std::string>() : std::string(value));
    return;
  }
  std::map<std::string, std::string> entries = MapEntries(message, field);
  entries.erase(key);
  message.GetReflection()->ClearField(&message, &field);
  for (const auto& [name, text] : entries) SetMapEntry(message, field, name, text);
}

absl::Status Apply(Message& root, absl::string_view path, absl::string_view value) {
  Message* message = &root;
  const std::vector<absl::string_view> segments = absl::StrSplit(path, '.');
  std::string walked;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Descriptor& type = *message->GetDescriptor();
    walked = JoinFieldPath(walked, segments[i]);
    const auto segment = ParseSegment(segments[i]);
    if (!segment.has_value()) {
      return FieldError(walked, "is not a field path; write one such as model.mlp.hidden[0]");
    }
    const FieldDescriptor* field = type.FindFieldByName(std::string(segment->name));
    if (field == nullptr) {
      return FieldError(walked,
                        absl::StrCat("no such field", Suggestion(segment->name, FieldNames(type))));
    }
    if (RulesOf(*field).output_only()) {
      return FieldError(walked, "is written by the server and cannot be set");
    }
    const bool is_last = i + 1 == segments.size();
    if (is_last) {
      if (segment->index >= 0) return SetElement(*message, *field, segment->index, value, walked);
      if (!value.empty()) return SetFieldJson(*message, *field, value, walked);
      message->GetReflection()->ClearField(message, field);
      return absl::OkStatus();
    }
    if (field->is_map()) {  // the rest is the key, which may contain dots
      const std::string key =
          absl::StrJoin(segments.begin() + static_cast<ptrdiff_t>(i) + 1, segments.end(), ".");
      SetOrEraseEntry(*message, *field, key, value);
      return absl::OkStatus();
    }
    if (IsMessageList(*field) && segment->index >= 0) {
      TY_RETURN_IF_ERROR(CheckIndex(*message, *field, segment->index, walked));
      message = message->GetReflection()->MutableRepeatedMessage(message, field, segment->index);
      continue;
    }
    if (IsMessageList(*field)) {
      return FieldError(walked, absl::StrCat("is a list; write which element is meant, such as ",
                                             segment->name, "[0].", segments[i + 1]));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_repeated()) {
      return FieldError(walked, absl::StrCat("has no field '", segments[i + 1], "' in it"));
    }
    // To unset a field of a message that does not exist, nothing has to be done.
    if (value.empty() && !IsGiven(*message, *field)) return absl::OkStatus();
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyChange(Message& message, absl::string_view path, absl::string_view value_json) {
  std::unique_ptr<Message> changed(message.New());
  changed->CopyFrom(message);
  TY_RETURN_IF_ERROR(Apply(*changed, path, absl::StripAsciiWhitespace(value_json)));
  message.GetReflection()->Swap(&message, changed.get());
  return absl::OkStatus();
}

}  // namespace trainyard::spec
