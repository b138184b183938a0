// Works on the tree of the file, and writes the whole tree again.
#include "client/config/config_file.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::config {
namespace {

using spec_loader::YamlEntry;
using spec_loader::YamlNode;

constexpr char kCurrent[] = "current";
constexpr char kContexts[] = "contexts";
constexpr size_t kNameBytesMax = 63;

const YamlNode* Find(const YamlNode& node, absl::string_view key) {
  for (const YamlEntry& entry : node.entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

// Returns the value of the key, which is added with this kind if it is not there or is null.
YamlNode& FindOrAdd(YamlNode& node, const std::string& key, YamlNode::Kind kind) {
  node.kind = YamlNode::Kind::kMap;
  auto found = std::find_if(node.entries.begin(), node.entries.end(),
                            [&key](const YamlEntry& entry) { return entry.key == key; });
  if (found == node.entries.end()) {
    node.entries.push_back({key, {}, {}});
    found = node.entries.end() - 1;
  }
  if (found->value.kind == YamlNode::Kind::kNull) found->value.kind = kind;
  return found->value;
}

void Erase(YamlNode& node, absl::string_view key) {
  node.entries.erase(std::remove_if(node.entries.begin(), node.entries.end(),
                                    [key](const YamlEntry& entry) { return entry.key == key; }),
                     node.entries.end());
}

bool IsPlain(absl::string_view text) {
  return !text.empty() && text.front() != '-' && text.back() != ':' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::StrContains("._-+/:@", c);
         });
}

// A text that was written without quotes may be a number or a word such as `true`, which it would
// not be with quotes.
std::string Scalar(absl::string_view text, bool is_quoted) {
  return !is_quoted && IsPlain(text) ? std::string(text) : JsonQuote(text);
}

// Appends a node as YAML; mappings as blocks, and everything in lists in one line.
std::string InOneLine(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return Scalar(node.text, node.is_quoted);
    case YamlNode::Kind::kList:
      return absl::StrCat("[",
                          absl::StrJoin(node.elements, ", ",
                                        [](std::string* out, const YamlNode& element) {
                                          *out += InOneLine(element);
                                        }),
                          "]");
    case YamlNode::Kind::kMap:
      return absl::StrCat("{",
                          absl::StrJoin(node.entries, ", ",
                                        [](std::string* out, const YamlEntry& entry) {
                                          absl::StrAppend(out, Scalar(entry.key, false), ": ",
                                                          InOneLine(entry.value));
                                        }),
                          "}");
  }
  return "";
}

std::string Block(const YamlNode& map, const std::string& indent) {
  std::string text;
  for (const YamlEntry& entry : map.entries) {
    absl::StrAppend(&text, indent, Scalar(entry.key, false), ":");
    if (entry.value.kind == YamlNode::Kind::kMap && !entry.value.entries.empty()) {
      absl::StrAppend(&text, "\n", Block(entry.value, indent + "  "));
    } else {
      absl::StrAppend(&text, " ", InOneLine(entry.value), "\n");
    }
  }
  return text;
}

// Returns the comments and empty lines with which the text begins.
std::string Head(absl::string_view text) {
  size_t end = 0;
  while (end < text.size() && (text[end] == '#' || text[end] == '\n')) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  return std::string(text.substr(0, end));
}

absl::Status CheckName(absl::string_view name) {
  const bool is_good =
      !name.empty() && name.size() <= kNameBytesMax &&
      absl::ascii_isalnum(static_cast<unsigned char>(name.front())) &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._-", c);
      });
  if (is_good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", PlainText(std::string(name), 100), "' cannot name a context; use at most ",
                   kNameBytesMax, " letters, digits and ._- after a letter or digit"));
}

}  // namespace

std::string ConfigPath(absl::string_view xdg_config_home, absl::string_view home) {
  const std::string root =
      xdg_config_home.empty() ? JoinPath(home, ".config") : std::string(xdg_config_home);
  return JoinPath(root, "trainyard/config.yaml");
}

absl::StatusOr<ConfigFile> ConfigFile::Load(const std::string& path) {
  ConfigFile file(path);
  const auto text = ReadFile(path, static_cast<int64_t>(spec_loader::kFileBytesMax));
  if (absl::IsNotFound(text.status())) return file;
  TY_RETURN_IF_ERROR(text.status());
  spec_loader::YamlDocument document = spec_loader::ParseYaml(*text);
  if (!document.mistakes.empty()) {
    return file.MistakeAt(document.mistakes.front().place, document.mistakes.front().message);
  }
  file.head_ = Head(*text);
  file.root_ = std::move(document.root);
  TY_RETURN_IF_ERROR(file.Check());
  return file;
}

absl::Status ConfigFile::MistakeAt(const spec_loader::Place& place, absl::string_view why) const {
  return absl::InvalidArgumentError(
      absl::StrCat("config file ", path_, ":", place.line, ":", place.column, ": ", why));
}

absl::Status ConfigFile::Check() const {
  if (root_.kind == YamlNode::Kind::kNull) return absl::OkStatus();
  if (root_.kind != YamlNode::Kind::kMap) {
    return MistakeAt(root_.place, "this is no mapping; expected `current:` and `contexts:`");
  }
  const YamlNode* current = Find(root_, kCurrent);
  if (current != nullptr &&
      (current->kind == YamlNode::Kind::kList || current->kind == YamlNode::Kind::kMap)) {
    return MistakeAt(current->place, "'current' must be the name of a context");
  }
  const YamlNode* contexts = Find(root_, kContexts);
  if (contexts == nullptr || contexts->kind == YamlNode::Kind::kNull) return absl::OkStatus();
  if (contexts->kind != YamlNode::Kind::kMap) {
    return MistakeAt(contexts->place, "'contexts' must be a mapping of names to contexts");
  }
  for (const YamlEntry& entry : contexts->entries) {
    if (entry.value.kind == YamlNode::Kind::kMap) continue;
    return MistakeAt(entry.key_place,
                     absl::StrCat("context '", entry.key, "' must be a mapping with a `server`"));
  }
  return absl::OkStatus();
}

std::string ConfigFile::Current() const {
  const YamlNode* current = Find(root_, kCurrent);
  return current == nullptr ? "" : current->text;
}

std::vector<std::string> ConfigFile::Names() const {
  std::vector<std::string> names;
  const YamlNode* contexts = Find(root_, kContexts);
  if (contexts == nullptr) return names;
  for (const YamlEntry& entry : contexts->entries) names.push_back(entry.key);
  return names;
}

absl::Status ConfigFile::CheckExists(absl::string_view name) const {
  const std::vector<std::string> names = Names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return absl::OkStatus();
  const std::string nearest = NearestWord(name, names);
  return absl::NotFoundError(
      absl::StrCat("there is no context '", PlainText(std::string(name), 100), "' in ", path_,
                   nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"),
                   names.empty() ? "; add it with `trainyard contexts add`"
                                 : absl::StrCat("\n  there are: ", absl::StrJoin(names, ", "))));
}

absl::StatusOr<std::string> ConfigFile::Get(absl::string_view name, absl::string_view key) const {
  TY_RETURN_IF_ERROR(CheckExists(name));
  const YamlNode& context = *Find(*Find(root_, kContexts), name);
  const YamlNode* value = Find(context, key);
  if (value == nullptr || value->text.empty()) {
    return MistakeAt(context.place, absl::StrCat("context '", name, "' has no ", key));
  }
  return value->text;
}

absl::Status ConfigFile::Set(const std::string& name, const std::string& key,
                             const std::string& value) {
  TY_RETURN_IF_ERROR(CheckName(name));
  YamlNode& contexts = FindOrAdd(root_, kContexts, YamlNode::Kind::kMap);
  YamlNode& context = FindOrAdd(contexts, name, YamlNode::Kind::kMap);
  YamlNode& node = FindOrAdd(context, key, YamlNode::Kind::kScalar);
  node = YamlNode();
  node.kind = YamlNode::Kind::kScalar;
  node.text = value;
  return absl::OkStatus();
}

absl::Status ConfigFile::Use(const std::string& name) {
  if (name.empty()) {
    Erase(root_, kCurrent);
    return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(CheckExists(name));
  YamlNode& current = FindOrAdd(root_, kCurrent, YamlNode::Kind::kScalar);
  current.text = name;
  return absl::OkStatus();
}

absl::Status ConfigFile::Remove(const std::string& name) {
  TY_RETURN_IF_ERROR(CheckExists(name));
  Erase(FindOrAdd(root_, kContexts, YamlNode::Kind::kMap), name);
  if (Current() == name) Erase(root_, kCurrent);
  return absl::OkStatus();
}

absl::Status ConfigFile::Save() const {
  // The file may be a link into a folder of settings, which is to stay a link.
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path_, failed);
  const std::string path = failed ? path_ : target.string();
  TY_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string(), 0700));
  return WriteFileAtomically(path, absl::StrCat(head_, Block(root_, "")), 0600);
}

}  // namespace trainyard::config
