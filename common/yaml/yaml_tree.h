// Parses YAML (and JSON, which is a part of it) strictly into a tree with places. Text that is
// ambiguous or could expand without bounds is refused. This is the only unit that uses yaml-cpp.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::yaml {

// Larger files are no specs. The limits make hostile files cheap to refuse.
inline constexpr size_t kFileBytesMax = size_t{256} << 10;
inline constexpr size_t kNodesMax = 10'000;
inline constexpr int kDepthMax = 32;

// The place of a value, counted from 1. Columns count characters.
struct Place {
  int line = 1;
  int column = 1;
  // The number of characters to underline.
  int length = 1;
};

// A mistake in the file.
struct Mistake {
  Place place;
  // The path of the field without "spec.", such as "train.global_batch". It is empty if the mistake
  // concerns the whole file.
  std::string path;
  std::string message;
};

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Place place;
  // The text of a kScalar without quotes.
  std::string text;
  bool is_quoted = false;
  // True for an alias, which was refused already and has no value.
  bool is_refused = false;
  // The elements of a kList.
  std::vector<YamlNode> elements;
  // The entries of a kMap, in the order of the file. Keys are unique.
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
  // False if the text ends the tree early, because it is no YAML or exceeds a limit.
  bool is_complete = true;
};

// Parses `text`. It refuses more than one document, duplicate keys, aliases, anchors, tags, keys
// that are no plain text, bytes that are not UTF-8, and whatever exceeds the limits. The root is
// then what could be read.
YamlDocument ParseYaml(absl::string_view text);

}  // namespace trainyard::yaml
