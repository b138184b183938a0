// YAML (and JSON, which is a part of it) as a tree with places, read strictly: what is ambiguous or
// could blow up is refused instead of guessed at. The only place that knows yaml-cpp.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::spec_loader {

// Larger files are no specs; the limits keep hostile ones cheap.
inline constexpr size_t kFileBytesMax = 256 * 1024;
inline constexpr size_t kNodesMax = 10'000;
inline constexpr int kDepthMax = 32;

// Where something stands, counted from 1; columns count characters.
struct Place {
  int line = 1;
  int column = 1;
  // Characters to underline.
  int length = 1;
};

// Something wrong in the file.
struct Mistake {
  Place place;
  // Field path without "spec.": "train.global_batch". Empty for the file as a whole.
  std::string path;
  std::string message;
};

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Place place;
  // kScalar: the text without quotes.
  std::string text;
  bool is_quoted = false;
  // An alias: refused already, and without a value.
  bool is_refused = false;
  // kList.
  std::vector<YamlNode> elements;
  // kMap, in the order of the file; keys are unique.
  std::vector<YamlEntry> entries;
};

struct YamlEntry {
  std::string key;
  Place key_place;
  YamlNode value;
};

struct YamlDocument {
  YamlNode root;
  std::vector<Mistake> mistakes;
  // False where the text ends the tree early: no YAML, or over a limit.
  bool is_complete = true;
};

// Refuses: more than one document, duplicate keys, aliases, anchors, tags, keys that are no plain
// text, bytes that are not UTF-8, and what is over the limits. The root is then what could be read.
YamlDocument ParseYaml(absl::string_view text);

}  // namespace trainyard::spec_loader
