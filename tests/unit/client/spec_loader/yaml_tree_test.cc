// Tests which YAML is refused, and the positions of accepted values.
#include "client/spec_loader/yaml_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace trainyard::spec_loader {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns the only mistake of the text.
std::string OnlyMistake(absl::string_view text) {
  const YamlDocument document = ParseYaml(text);
  EXPECT_EQ(document.mistakes.size(), 1u);
  if (document.mistakes.empty()) return "";
  const Mistake& mistake = document.mistakes.front();
  return absl::StrCat(mistake.place.line, ":", mistake.place.column, ": ", mistake.message);
}

TEST(YamlTree, PlacesAreCountedInCharacters) {
  const YamlDocument document = ParseYaml("a: {\xc3\xa4: b}\n");
  ASSERT_THAT(document.mistakes, IsEmpty());
  const YamlEntry& entry = document.root.entries.at(0).value.entries.at(0);
  EXPECT_EQ(entry.key_place.column, 5);
  EXPECT_EQ(entry.value.place.column, 8);
}

TEST(YamlTree, TheLimitOfBytesHolds) {
  const std::string comment(kFileBytesMax - 5, '#');
  EXPECT_THAT(ParseYaml("a: b\n" + comment).mistakes, IsEmpty());
  EXPECT_THAT(OnlyMistake("a: b\n#" + comment), HasSubstr("expected at most 256 KiB"));
}

TEST(YamlTree, TheLimitOfValuesHolds) {
  const auto list = [](size_t values) {
    std::string text = "[";
    for (size_t i = 0; i < values; ++i) text += "1,";
    return text + "]";
  };
  EXPECT_THAT(ParseYaml(list(kNodesMax - 1)).mistakes, IsEmpty());
  EXPECT_THAT(OnlyMistake(list(kNodesMax)), HasSubstr("more than 10,000 values"));
}

TEST(YamlTree, TheLimitOfDepthHolds) {
  const auto nest = [](size_t depth) {
    return std::string(depth, '[') + "1" + std::string(depth, ']');
  };
  EXPECT_THAT(ParseYaml(nest(kDepthMax)).mistakes, IsEmpty());
  EXPECT_THAT(OnlyMistake(nest(kDepthMax + 1)), HasSubstr("deeper than 32 levels"));
  EXPECT_FALSE(ParseYaml(nest(100'000)).mistakes.empty());
}

TEST(YamlTree, AliasesAreNotFollowed) {
  std::string bomb = "a: &a [x, x]\n";
  for (char c = 'b'; c <= 'z'; ++c) {
    absl::StrAppend(&bomb, std::string(1, c), ": &", std::string(1, c), " [*",
                    std::string(1, static_cast<char>(c - 1)), ", *",
                    std::string(1, static_cast<char>(c - 1)), "]\n");
  }
  const YamlDocument document = ParseYaml(bomb);
  EXPECT_EQ(document.mistakes.size(), 26u + 50u);
}

TEST(YamlTree, WhatIsNotYamlSaysWhere) {
  EXPECT_THAT(OnlyMistake("a: [1, 2\nb: 3\n"), HasSubstr("cannot be read"));
  EXPECT_THAT(OnlyMistake("a:\n\tb: 3\n"), HasSubstr("tab"));
  EXPECT_THAT(OnlyMistake("a: \"\xff\"\n"), HasSubstr("not UTF-8"));
  EXPECT_THAT(OnlyMistake("a: 1\n---\nb: 2\n"), HasSubstr("more than one document"));
  EXPECT_THAT(OnlyMistake("? [a, b]\n: 1\n"), HasSubstr("a key must be a name"));
}

TEST(YamlTree, QuotedTextIsToldFromPlain) {
  const YamlDocument document = ParseYaml("[1, \"1\", '1', ~, ]");
  ASSERT_EQ(document.root.elements.size(), 4u);
  EXPECT_FALSE(document.root.elements[0].is_quoted);
  EXPECT_TRUE(document.root.elements[1].is_quoted);
  EXPECT_TRUE(document.root.elements[2].is_quoted);
  EXPECT_EQ(document.root.elements[3].kind, YamlNode::Kind::kNull);
}

}  // namespace
}  // namespace trainyard::spec_loader
