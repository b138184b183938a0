#include "common/spec/json_values.h"

#include <gtest/gtest.h>

namespace trainyard::spec {
namespace {

TEST(JsonValues, ATextThatLooksLikeAnotherValueIsQuoted) {
  EXPECT_EQ(ValueOfText("cosine"), "cosine");
  EXPECT_EQ(ValueOfText("1.10"), "\"1.10\"");
  EXPECT_EQ(ValueOfText("true"), "\"true\"");
  EXPECT_EQ(ValueOfText("[1"), "[1") << "which is no JSON";
}

TEST(JsonValues, WordsMeanWhatTheyMeanInYaml) {
  EXPECT_EQ(JsonOfValue(ValueOfWord(".5")), "0.5");
  EXPECT_EQ(JsonOfValue(ValueOfWord("True")), "true");
  EXPECT_EQ(JsonOfValue(ValueOfWord("12")), "12");
  EXPECT_EQ(JsonOfValue(ValueOfWord("cosine")), "\"cosine\"");
}

TEST(JsonValues, ValuesGoThroughJsonAndBack) {
  EXPECT_EQ(JsonOfValue("cosine"), "\"cosine\"");
  EXPECT_EQ(JsonOfValue("\"1.10\""), "\"1.10\"");
  EXPECT_EQ(JsonOfValue("0.1"), "0.1");
}

}  // namespace
}  // namespace trainyard::spec
