// YAML has one kind of scalar and JSON has several, so each word is looked at.
#include "client/commands/pod_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/yaml/yaml_tree.h"

namespace trainyard::commands {
namespace {

using nlohmann::json;
using yaml::YamlNode;

constexpr int kOctal = 8;
// No mode of a file is larger.
constexpr int64_t kOctalMax = 07777;

// Modes of files are written 0440 or 0o440.
bool ReadOctal(absl::string_view text, int64_t& value) {
  if (absl::StartsWith(text, "0o")) {
    text.remove_prefix(2);
  } else if (text.size() < 2 || text[0] != '0') {
    return false;
  }
  value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '7' || value > kOctalMax) return false;
    value = value * kOctal + (digit - '0');
  }
  return !text.empty();
}

json ScalarOf(const YamlNode& node) {
  const std::string& text = node.text;
  if (node.is_quoted) return text;
  for (const char* word : {"", "~", "null", "Null", "NULL"}) {
    if (text == word) return nullptr;
  }
  for (const char* word : {"true", "True", "TRUE"}) {
    if (text == word) return true;
  }
  for (const char* word : {"false", "False", "FALSE"}) {
    if (text == word) return false;
  }
  int64_t whole = 0;
  if (ReadOctal(text, whole)) return whole;
  // Only digits and signs of numbers: "inf" and " 1" are texts.
  if (text.find_first_not_of("+-.0123456789eE") != std::string::npos) return text;
  if (absl::SimpleAtoi(text, &whole)) return whole;
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) return number;
  return text;
}

json JsonOf(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar:
      return ScalarOf(node);
    case YamlNode::Kind::kList: {
      json list = json::array();
      for (const YamlNode& element : node.elements) list.push_back(JsonOf(element));
      return list;
    }
    case YamlNode::Kind::kMap:
      break;
  }
  json map = json::object();
  for (const yaml::YamlEntry& entry : node.entries) map[entry.key] = JsonOf(entry.value);
  return map;
}

}  // namespace

absl::StatusOr<std::string> ReadPodFile(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(path, static_cast<int64_t>(yaml::kFileBytesMax)));
  const yaml::YamlDocument document = yaml::ParseYaml(text);
  if (!document.mistakes.empty()) {
    const yaml::Mistake& first = document.mistakes.front();
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", first.place.line, ":", first.place.column, ": ", first.message));
  }
  return JsonOf(document.root).dump();
}

}  // namespace trainyard::commands
