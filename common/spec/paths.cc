// Walks along paths by reflection.
#include "common/spec/paths.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/spec/fields.h"

namespace trainyard::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void CollectPaths(const Descriptor& type, const std::string& prefix,
                  std::vector<std::string>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = JoinFieldPath(prefix, field.name());
    if (IsSubmessage(field)) {
      CollectPaths(*field.message_type(), path, paths);
    } else if (!IsMessageList(field)) {
      paths.push_back(path);
    }
  }
}

std::string WithoutQuotes(const std::string& json) {
  const bool is_text = json.size() >= 2 && json.front() == '"';
  return is_text ? json.substr(1, json.size() - 2) : json;
}

}  // namespace

const std::vector<std::string>& SpecPaths() {
  static const auto* paths = [] {
    auto* all = new std::vector<std::string>;
    CollectPaths(*v1::JobSpec::descriptor(), "", *all);
    return all;
  }();
  return *paths;
}

std::vector<std::string> PathsOf(absl::string_view word) {
  if (word.empty()) return {};
  if (FieldOfPath(word) != nullptr) return {std::string(word)};
  std::vector<std::string> found;
  const std::string ending = absl::StrCat(".", word);
  for (const std::string& path : SpecPaths()) {
    if (absl::EndsWith(path, ending)) found.push_back(path);
  }
  return found;
}

const FieldDescriptor* FieldOfPath(absl::string_view path) {
  const Descriptor* type = v1::JobSpec::descriptor();
  const std::vector<std::string> words = absl::StrSplit(path, '.');
  for (size_t i = 0; i < words.size(); ++i) {
    const FieldDescriptor* field = type->FindFieldByName(words[i]);
    if (field == nullptr) return nullptr;
    const bool is_last = i + 1 == words.size();
    if (IsSubmessage(*field)) {
      if (is_last) return nullptr;
      type = field->message_type();
      continue;
    }
    if (IsMessageList(*field)) return nullptr;
    return is_last || (field->is_map() && !words[i + 1].empty()) ? field : nullptr;
  }
  return nullptr;
}

std::string ValueAt(const v1::JobSpec& spec, absl::string_view path) {
  const Message* message = &spec;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const absl::string_view word = path.substr(0, dot);
    path = dot == absl::string_view::npos ? absl::string_view() : path.substr(dot + 1);
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(std::string(word));
    if (field == nullptr || !IsGiven(*message, *field)) return "";
    if (IsSubmessage(*field)) {
      message = &message->GetReflection()->GetMessage(*message, field);
    } else if (field->is_map() && !path.empty()) {
      const std::map<std::string, std::string> entries = MapEntries(*message, *field);
      const auto entry = entries.find(std::string(path));
      return entry == entries.end() ? "" : WithoutQuotes(entry->second);
    } else {
      return path.empty() ? WithoutQuotes(FieldJson(*message, *field)) : "";
    }
  }
  return "";
}

}  // namespace trainyard::spec
