// Tests text for people and for JSON.
#include "common/base/strings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trainyard {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

std::string ParsedBack(absl::string_view text) {
  return nlohmann::json::parse(JsonQuote(text)).get<std::string>();
}

TEST(JsonQuote, EscapesWhatJsonDemands) {
  EXPECT_EQ(JsonQuote(""), "\"\"");
  EXPECT_EQ(JsonQuote("a \"b\" \\ c"), "\"a \\\"b\\\" \\\\ c\"");
  EXPECT_EQ(JsonQuote("line\nnext\ttab"), "\"line\\nnext\\u0009tab\"");
  EXPECT_EQ(JsonQuote(absl::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\x7f\"");
}

TEST(JsonQuote, KeepsUtf8) {
  for (const char* text : {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x9a\x82", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "\xc2\x80", "\xe0\xa0\x80"}) {
    EXPECT_EQ(ParsedBack(text), text);
  }
}

TEST(JsonQuote, ReplacesEveryMalformedByte) {
  const auto replaced = [](int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += kReplacement;
    return text;
  };
  EXPECT_EQ(ParsedBack("a\xff"
                       "b"),
            "a" + replaced(1) + "b");
  EXPECT_EQ(ParsedBack("\x80"), replaced(1));              // a trail byte without a lead byte
  EXPECT_EQ(ParsedBack("\xc3"), replaced(1));              // cut at the end
  EXPECT_EQ(ParsedBack("\xe2\x82"), replaced(2));          // cut at the end
  EXPECT_EQ(ParsedBack("\xc3("), replaced(1) + "(");       // a lead byte without its trail byte
  EXPECT_EQ(ParsedBack("\xc0\xaf"), replaced(2));          // overlong
  EXPECT_EQ(ParsedBack("\xe0\x9f\xbf"), replaced(3));      // overlong
  EXPECT_EQ(ParsedBack("\xf0\x8f\xbf\xbf"), replaced(4));  // overlong
  EXPECT_EQ(ParsedBack("\xed\xa0\x80"), replaced(3));      // a surrogate
  EXPECT_EQ(ParsedBack("\xf4\x90\x80\x80"), replaced(4));  // past U+10FFFF
  EXPECT_EQ(ParsedBack("\xf5\x80\x80\x80"), replaced(4));
}

TEST(JsonQuote, OfAnyTwoBytesIsJson) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_TRUE(nlohmann::json::accept(JsonQuote(text))) << first << " " << second;
    }
  }
}

TEST(EditDistance, CountsInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(EditDistance("", ""), 0U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("abc", ""), 3U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
  EXPECT_EQ(EditDistance("epochs", "epoch"), 1U);
  EXPECT_EQ(EditDistance("ab", "ba"), 2U);
}

TEST(NearestWord, SuggestsOnlyWhatMayBeMeant) {
  const std::vector<std::string> words = {"epochs", "global_batch", "precision", "seed"};
  EXPECT_EQ(NearestWord("epoch", words), "epochs");
  EXPECT_EQ(NearestWord("globl_bach", words), "global_batch");
  EXPECT_EQ(NearestWord("colour", words), "");
  EXPECT_EQ(NearestWord("epochs", {}), "");
}

TEST(NearestWord, PrefersTheFirstOfEquallyNearWords) {
  EXPECT_EQ(NearestWord("tas", {"tag", "tar"}), "tag");
}

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(7), "7 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{12} * 1024), "12 KiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(FormatBytes(INT64_MAX), "8192 PiB");
}

TEST(PlainText, HasNothingThatATerminalObeys) {
  EXPECT_EQ(PlainText("\x1b]0;pwned\x07\x1b[2J", 100), "?]0;pwned??[2J");
  EXPECT_EQ(PlainText("a\tb\nc\r\x7f", 100), "a\tb\nc??");
  EXPECT_EQ(PlainText("\u009b2J \u00a0\u00e9", 100), "?2J \u00a0\u00e9");
}

TEST(PlainText, MarksWhatIsCutAndLeavesCharactersWhole) {
  EXPECT_EQ(PlainText("short", 5), "short");
  EXPECT_EQ(PlainText("too long", 7), "too ...");
  EXPECT_EQ(PlainText("a\u00e9\u00e9\u00e9", 6), "a ...")
      << "the second byte of a letter is not cut off";
  EXPECT_EQ(PlainText("aa\u00e9\u00e9\u00e9", 6), "aa ...");
  EXPECT_EQ(PlainText(std::string(100, 'x'), 4), " ...");
}

TEST(FormatCount, GroupsDigitsByThree) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1'234'567), "1,234,567");
  EXPECT_EQ(FormatCount(-123), "-123");
  EXPECT_EQ(FormatCount(-1234), "-1,234");
}

}  // namespace
}  // namespace trainyard
