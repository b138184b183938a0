// Walks the YAML tree and the message side by side, and continues after each mistake, so that all
// of them are reported at once.
#include "client/spec_loader/spec_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/spec_loader/field_value.h"
#include "common/base/escape.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"
#include "common/spec/json_values.h"
#include "common/spec/resolve.h"
#include "common/spec/rules.h"
#include "trainyard/v1/annotations.pb.h"

namespace trainyard::spec_loader {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using spec::JoinFieldPath;

constexpr absl::string_view kSpecPrefix = "spec";
// A longer list of mistakes helps nobody.
constexpr size_t kMistakesShownMax = 50;

// This class makes one walk over the tree of a file.
class Loader {
 public:
  explicit Loader(SpecFile& file) : file_(file) {}

  void LoadRoot(const YamlNode& root);

 private:
  void Refuse(const Place& place, const std::string& path, std::string message) {
    file_.mistakes.push_back({place, path, std::move(message)});
  }
  void LoadEntries(Message& message, const std::vector<YamlEntry>& entries,
                   const std::string& path);
  void UnknownKey(const Descriptor& type, const YamlEntry& entry, const std::string& path);
  void LoadField(Message& message, const FieldDescriptor& field, const Place& key,
                 const YamlNode& node, const std::string& path);
  void LoadList(Message& message, const FieldDescriptor& field, const YamlNode& node,
                const std::string& path);
  void LoadMap(Message& message, const FieldDescriptor& field, const YamlNode& node,
               const std::string& path);
  void LoadValue(Message& message, const FieldDescriptor& field, const YamlNode& node,
                 const std::string& path);
  void LoadSubmessage(Message& message, const Place& key, const YamlNode& node,
                      const std::string& path, bool may_be_empty);
  void LoadBareWord(Message& message, const YamlNode& node, const std::string& path);

  SpecFile& file_;
};

void Loader::LoadRoot(const YamlNode& root) {
  file_.places[""] = root.place;
  // Without a mapping, every required key would be missing too.
  file_.is_readable = root.kind == YamlNode::Kind::kMap;
  if (root.kind == YamlNode::Kind::kNull) {
    Refuse(root.place, "", "the file is empty; jobs/ has specs to start from");
  } else if (root.kind != YamlNode::Kind::kMap) {
    Refuse(root.place, "",
           absl::StrCat("expected a mapping such as 'name: my-job', found ", Found(root)));
  } else {
    LoadEntries(file_.spec, root.entries, "");
  }
}

void Loader::LoadEntries(Message& message, const std::vector<YamlEntry>& entries,
                         const std::string& path) {
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (const YamlEntry& entry : entries) {
    const FieldDescriptor* field = type.FindFieldByName(entry.key);
    if (field == nullptr) {
      UnknownKey(type, entry, path);
      continue;
    }
    const std::string field_path = JoinFieldPath(path, entry.key);
    const OneofDescriptor* oneof = field->real_containing_oneof();
    if (oneof != nullptr && reflection.HasOneof(message, oneof)) {
      const FieldDescriptor* other = reflection.GetOneofFieldDescriptor(message, oneof);
      Refuse(entry.key_place, field_path,
             absl::StrCat("'", other->name(),
                          "' is given already, and only one of them can be; "
                          "keep one"));
      continue;
    }
    LoadField(message, *field, entry.key_place, entry.value, field_path);
  }
}

void Loader::UnknownKey(const Descriptor& type, const YamlEntry& entry, const std::string& path) {
  const std::vector<std::string> names = spec::FieldNames(type);
  const std::string nearest = NearestWord(entry.key, names);
  std::string message = "unknown key";
  if (!nearest.empty()) {
    absl::StrAppend(&message, "; did you mean '", nearest, "'?");
    file_.suspects.push_back(JoinFieldPath(path, nearest));
  } else if (names.empty()) {
    absl::StrAppend(&message, "; no keys are accepted here");
  } else {
    absl::StrAppend(&message, "; expected one of ", absl::StrJoin(names, ", "));
  }
  file_.suspects.push_back(path);
  Refuse(entry.key_place, JoinFieldPath(path, entry.key), std::move(message));
}

void Loader::LoadField(Message& message, const FieldDescriptor& field, const Place& key,
                       const YamlNode& node, const std::string& path) {
  const bool is_null = node.kind == YamlNode::Kind::kNull;
  if (node.is_refused) {
    file_.suspects.push_back(path);
    return;
  }
  file_.places[path] = is_null ? key : node.place;
  if (field.is_map() && !is_null) {
    LoadMap(message, field, node, path);
  } else if (is_null && !spec::IsSubmessage(field)) {
    Refuse(key, path, "has no value; write one, or leave the key out");
  } else if (field.is_repeated()) {
    LoadList(message, field, node, path);
  } else if (spec::IsSubmessage(field)) {
    file_.places[path] = key;
    LoadSubmessage(*message.GetReflection()->MutableMessage(&message, &field), key, node, path,
                   field.real_containing_oneof() != nullptr);
  } else {
    LoadValue(message, field, node, path);
  }
}

void Loader::LoadList(Message& message, const FieldDescriptor& field, const YamlNode& node,
                      const std::string& path) {
  const Reflection& reflection = *message.GetReflection();
  if (node.kind != YamlNode::Kind::kList) {
    Refuse(node.place, path, absl::StrCat("expected a list such as [32, 64], found ", Found(node)));
    return;
  }
  std::vector<std::string> values;
  for (size_t i = 0; i < node.elements.size(); ++i) {
    const YamlNode& element = node.elements[i];
    const std::string element_path = absl::StrCat(path, "[", i, "]");
    file_.places[element_path] = element.place;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      LoadSubmessage(*reflection.AddMessage(&message, &field), element.place, element, element_path,
                     /*may_be_empty=*/false);
      continue;
    }
    auto value = ScalarJson(field, element);
    if (value.ok()) {
      values.push_back(*std::move(value));
    } else {
      Refuse(element.place, element_path, std::string(value.status().message()));
    }
  }
  if (values.size() != node.elements.size()) return;
  const absl::Status status =
      spec::SetFieldJson(message, field, absl::StrCat("[", absl::StrJoin(values, ","), "]"), path);
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    const auto place = file_.places.find(violation.field);
    Refuse(place != file_.places.end() ? place->second : node.place, violation.field,
           violation.description);
  }
}

// Returns a node of a map whose values are JSON as one of them. The tree holds no cycles and no
// deeper nodes than kDepthMax.
std::string JsonOf(const YamlNode& node) {
  std::vector<std::string> parts;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return spec::JsonOfValue(node.is_quoted ? spec::ValueOfText(node.text)
                                              : spec::ValueOfWord(node.text));
    case YamlNode::Kind::kList:
      for (const YamlNode& element : node.elements) parts.push_back(JsonOf(element));
      return absl::StrCat("[", absl::StrJoin(parts, ","), "]");
    case YamlNode::Kind::kMap:
      for (const YamlEntry& entry : node.entries) {
        parts.push_back(absl::StrCat(JsonQuote(entry.key), ":", JsonOf(entry.value)));
      }
      return absl::StrCat("{", absl::StrJoin(parts, ","), "}");
  }
  return "null";
}

std::string ValueOf(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return JsonOf(node);
  return node.is_quoted ? spec::ValueOfText(node.text) : spec::ValueOfWord(node.text);
}

// A map has names and texts, as in `labels: {zone: a}`, or names and JSON.
void Loader::LoadMap(Message& message, const FieldDescriptor& field, const YamlNode& node,
                     const std::string& path) {
  if (node.kind != YamlNode::Kind::kMap) {
    Refuse(node.place, path,
           absl::StrCat("expected names and values such as {zone: a}, found ", Found(node)));
    return;
  }
  for (const YamlEntry& entry : node.entries) {
    const std::string entry_path = JoinFieldPath(path, entry.key);
    file_.places[entry_path] = entry.value.place;
    if (entry.value.is_refused) continue;
    if (spec::RulesOf(field).json_values()) {
      spec::SetMapEntry(message, field, entry.key, ValueOf(entry.value));
    } else if (entry.value.kind == YamlNode::Kind::kScalar) {
      spec::SetMapEntry(message, field, entry.key, entry.value.text);
    } else {
      Refuse(entry.value.place, entry_path,
             absl::StrCat("expected a text, found ", Found(entry.value)));
    }
  }
}

void Loader::LoadValue(Message& message, const FieldDescriptor& field, const YamlNode& node,
                       const std::string& path) {
  const auto value = ScalarJson(field, node);
  if (!value.ok()) {
    Refuse(node.place, path, std::string(value.status().message()));
    return;
  }
  const absl::Status status = spec::SetFieldJson(message, field, *value, path);
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    Refuse(node.place, path, violation.description);
  }
}

void Loader::LoadSubmessage(Message& message, const Place& key, const YamlNode& node,
                            const std::string& path, bool may_be_empty) {
  const Descriptor& type = *message.GetDescriptor();
  const std::string& shorthand = type.options().GetExtension(v1::shorthand);
  switch (node.kind) {
    case YamlNode::Kind::kMap:
      LoadEntries(message, node.entries, path);
      return;
    case YamlNode::Kind::kNull:
      // The key `cosine:` without a value chooses the member.
      if (!may_be_empty) {
        Refuse(key, path,
               absl::StrCat("has no value; expected the keys ",
                            absl::StrJoin(spec::FieldNames(type), ", ")));
      }
      return;
    case YamlNode::Kind::kScalar:
      if (!shorthand.empty()) {
        const FieldDescriptor* field = type.FindFieldByName(shorthand);
        LoadField(message, *field, node.place, node, JoinFieldPath(path, shorthand));
      } else {
        LoadBareWord(message, node, path);
      }
      return;
    case YamlNode::Kind::kList:
      Refuse(node.place, path,
             absl::StrCat("expected a mapping with the keys ",
                          absl::StrJoin(spec::FieldNames(type), ", "), "; found a list"));
      return;
  }
}

// In `schedule: cosine`, only the name of the oneof's member is given.
void Loader::LoadBareWord(Message& message, const YamlNode& node, const std::string& path) {
  const Descriptor& type = *message.GetDescriptor();
  std::vector<std::string> members;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.real_containing_oneof() == nullptr || !spec::IsSubmessage(field)) continue;
    members.push_back(field.name());
    if (field.name() != node.text) continue;
    message.GetReflection()->MutableMessage(&message, &field);
    file_.places[JoinFieldPath(path, field.name())] = node.place;
    return;
  }
  file_.suspects.push_back(path);
  if (members.empty()) {
    Refuse(node.place, path,
           absl::StrCat("expected a mapping with the keys ",
                        absl::StrJoin(spec::FieldNames(type), ", "), "; found ", Found(node)));
  } else {
    Refuse(node.place, path,
           absl::StrCat("'", node.text, "' is not accepted", spec::Suggestion(node.text, members)));
  }
}

// Flags by the fields of the request that they fill in.
constexpr std::pair<absl::string_view, absl::string_view> kFlagOfField[] = {
    {"options.array_size", "--array"}, {"options.array_parallel", "--array"},
    {"options.after", "--after"},      {"options.after_ok", "--after-ok"},
    {"options.begin_time", "--begin"}, {"options.reservation", "--reservation"},
    {"from_checkpoint", "--from"},     {"request_id", "--request-id"},
};

// Returns the path of a violation without "spec.", or the flag from which it comes.
std::string FilePath(absl::string_view field) {
  if (field == kSpecPrefix) return "";
  for (const auto& [path, flag] : kFlagOfField) {
    if (field == path) return std::string(flag);
  }
  absl::string_view rest = field;
  if (absl::StartsWith(rest, "spec.")) rest.remove_prefix(5);
  return std::string(rest);
}

bool IsAtOrBelow(absl::string_view path, absl::string_view ancestor) {
  if (ancestor.empty()) return false;
  if (!absl::StartsWith(path, ancestor)) return false;
  return path.size() == ancestor.size() || path[ancestor.size()] == '.' ||
         path[ancestor.size()] == '[';
}

// Returns the place of the field, or of the innermost enclosing field that the file has.
Place NearestPlace(const SpecFile& file, std::string path) {
  while (true) {
    const auto place = file.places.find(path);
    if (place != file.places.end()) return place->second;
    if (path.empty()) return Place();
    const size_t end = path.find_last_of(".[");
    path = end == std::string::npos ? "" : path.substr(0, end);
  }
}

// A violation that only follows from a mistake that is already reported says nothing new.
bool IsKnown(const SpecFile& file, const std::string& path) {
  for (const std::string& suspect : file.suspects) {
    if (suspect == path) return true;
  }
  for (const Mistake& mistake : file.mistakes) {
    if (IsAtOrBelow(path, mistake.path) || IsAtOrBelow(mistake.path, path)) return true;
  }
  return false;
}

void Sort(std::vector<Mistake>& mistakes) {
  std::stable_sort(mistakes.begin(), mistakes.end(), [](const Mistake& a, const Mistake& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
}

}  // namespace

SpecFile ParseSpecFile(absl::string_view name, absl::string_view text) {
  SpecFile file;
  file.name = std::string(name);
  file.text = std::string(text);
  YamlDocument document = ParseYaml(text);
  file.mistakes = std::move(document.mistakes);
  // A tree that was cut off would only yield mistakes that are none.
  file.is_readable = document.is_complete;
  if (file.is_readable) Loader(file).LoadRoot(document.root);
  Sort(file.mistakes);
  return file;
}

absl::StatusOr<SpecFile> ReadSpecFile(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const SpecText text, ReadSpecText(path));
  return ParseSpecText(text);
}

SpecFile ParseSpecText(const SpecText& text) {
  SpecFile file = ParseSpecFile(text.name, text.text);
  file.first_line = text.first_line;
  file.code = text.code;
  file.saved_spec = text.saved_spec;
  return file;
}

void AddViolations(SpecFile& file, const std::vector<FieldViolation>& violations,
                   const std::vector<std::string>& changed) {
  std::vector<Mistake> added;
  for (const FieldViolation& violation : violations) {
    const std::string path = FilePath(violation.field);
    if (IsKnown(file, path)) continue;
    Mistake mistake = {NearestPlace(file, path), path, violation.description};
    // A mistake that is not in the spec comes from a flag.
    if (!absl::StartsWith(violation.field, kSpecPrefix)) mistake.place.line = 0;
    for (const std::string& change : changed) {
      if (IsAtOrBelow(path, change)) mistake.place.line = 0;
    }
    added.push_back(std::move(mistake));
  }
  file.mistakes.insert(file.mistakes.end(), added.begin(), added.end());
  Sort(file.mistakes);
}

void AddRuleMistakes(SpecFile& file, const v1::JobSpec& spec,
                     const std::vector<std::string>& changed) {
  if (!file.is_readable) return;
  // The rules between fields need every field to be what the user meant.
  if (!file.mistakes.empty()) {
    AddViolations(file, spec::ValidateRules(spec, kSpecPrefix), changed);
    return;
  }
  v1::JobSpec resolved;
  AddViolations(file, spec::ResolveInto(spec, resolved), changed);
}

std::string RenderMistakes(const SpecFile& file, bool color) {
  const std::vector<absl::string_view> lines = absl::StrSplit(file.text, '\n');
  const char* bold = color ? "\xff[1m" : "";
  const char* red = color ? "\xff[31m" : "";
  const char* plain = color ? "\xff[0m" : "";
  std::string out;
  size_t shown = 0;
  for (const Mistake& mistake : file.mistakes) {
    if (shown++ == kMistakesShownMax) {
      absl::StrAppend(&out, "... and ", file.mistakes.size() - kMistakesShownMax, " more\n");
      break;
    }
    const std::string path = mistake.path.empty() ? "" : absl::StrCat(mistake.path, ": ");
    // A change of the command line has no place in the file.
    if (mistake.place.line == 0) {
      absl::StrAppend(&out, bold, "command line: ", plain, path, mistake.message, "\n");
      continue;
    }
    const int line_of_file = mistake.place.line + file.first_line;
    absl::StrAppend(&out, bold, file.name, ":", line_of_file, ":", mistake.place.column, ": ",
                    plain, path, mistake.message, "\n");
    const size_t line = static_cast<size_t>(mistake.place.line - 1);
    if (line >= lines.size() || lines[line].size() > 200) continue;
    const std::string number = absl::StrCat(line_of_file);
    const int carets = std::max(1, mistake.place.length);
    absl::StrAppend(&out, "  ", number, " | ", WithoutEscapes(lines[line]), "\n  ",
                    std::string(number.size(), ' '), " | ",
                    std::string(static_cast<size_t>(mistake.place.column - 1), ' '), red, "^",
                    std::string(static_cast<size_t>(carets - 1), '~'), plain, "\n");
  }
  return out;
}

}  // namespace trainyard::spec_loader
