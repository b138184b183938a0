// Tests the language in which people say which jobs they mean.
#include "server/filter/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace trainyard::filter {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<FieldType> TypeOf(const std::string& field) {
  static const auto* types = new std::map<std::string, FieldType>{
      {"name", {Kind::kText}},      {"state", {Kind::kWord, {"running", "failed"}}},
      {"tag", {Kind::kTexts}},      {"acc", {Kind::kNumber}},
      {"took", {Kind::kDuration}},  {"size", {Kind::kBytes}},
      {"created", {Kind::kTime}},   {"param", {Kind::kAny}},
      {"missing", {Kind::kNumber}}, {"gone", {Kind::kText}}};
  const auto found = types->find(field);
  if (found == types->end()) return absl::InvalidArgumentError("a field; did you mean 'name'?");
  return found->second;
}

// The fields of the job of these tests. It was created on 2026-11-27 at 10:00 UTC.
Value ValueOf(const std::string& field) {
  static const auto* values =
      new std::map<std::string, Value>{{"name", "ResNet-3"},
                                       {"state", "RUNNING"},
                                       {"tag", std::vector<std::string>{"paper", "good"}},
                                       {"acc", 0.9},
                                       {"took", 7200.0},
                                       {"size", 4096.0},
                                       {"created", 1795773600.0},
                                       {"param", 16.0}};
  const auto found = values->find(field);
  return found == values->end() ? Value() : found->second;
}

bool Holds(const std::string& text) {
  const auto expression = Expression::Parse(text, TypeOf);
  EXPECT_TRUE(expression.ok()) << text << ": " << expression.status();
  return expression.ok() && expression->Holds(ValueOf);
}

std::string ErrorOf(const std::string& text) {
  const auto expression = Expression::Parse(text, TypeOf);
  EXPECT_FALSE(expression.ok()) << text;
  return std::string(expression.status().message());
}

TEST(Expression, ComparesEachKindOfField) {
  for (const char* text : {"acc = 0.9",
                           "acc == 0.9",
                           "acc != 1",
                           "acc < 1",
                           "acc <= 0.9",
                           "acc > 89%",
                           "acc >= 0.9",
                           "name = ResNet-3",
                           "name = 'ResNet-3'",
                           "name != resnet",
                           "name ~ resnet",
                           "name ~ NET-",
                           "state = running",
                           "state = RUNNING",
                           "state != failed",
                           "state ~ run",
                           "took = 2h",
                           "took > 90min",
                           "took <= 7200s",
                           "size = 4KiB",
                           "size < '1 MiB'",
                           "tag = good",
                           "tag != bad",
                           "tag ~ pap",
                           "created = 2026-11-27",
                           "created > 2026-11-26",
                           "created < 2026-11-28",
                           "created >= 2026-11-27T10:00",
                           "created = '2026-11-27 10:00'",
                           "created < 2026-11-27T10:00:01Z",
                           "created <= 2026-11-27",
                           "created != 2026-11-26",
                           "created = 2026-11-27T12:00:00+02:00",
                           "param = 16",
                           "param > 2",
                           "param != abc"}) {
    EXPECT_TRUE(Holds(text)) << text;
  }
  for (const char* text : {"acc = 0.91",
                           "acc != 0.9",
                           "acc < 0.9",
                           "acc > 0.9",
                           "acc >= 0.91",
                           "name = resnet-3",
                           "name ~ vgg",
                           "state = failed",
                           "state != running",
                           "took < 2h",
                           "size > 4KiB",
                           "tag = ood",
                           "tag != good",
                           "tag ~ x",
                           "created = 2026-11-28",
                           "created > 2026-11-27",
                           "created < 2026-11-27",
                           "created > '2026-11-27 10:00'",
                           "param < 2",
                           "param = abc"}) {
    EXPECT_FALSE(Holds(text)) << text;
  }
}

TEST(Expression, AFieldAloneIsTrueIfItIsThere) {
  EXPECT_TRUE(Holds("acc"));
  EXPECT_TRUE(Holds("tag and name"));
  EXPECT_FALSE(Holds("missing"));
  EXPECT_TRUE(Holds("not gone"));
}

TEST(Expression, AComparisonWithWhatIsMissingIsFalse) {
  for (const char* op : {"=", "!=", "<", "<=", ">", ">="}) {
    EXPECT_FALSE(Holds(absl::StrCat("missing ", op, " 1")));
    EXPECT_TRUE(Holds(absl::StrCat("not missing ", op, " 1")));
  }
  EXPECT_FALSE(Holds("gone != x"));
  EXPECT_FALSE(Holds("gone ~ x"));
}

TEST(Expression, AndBindsTighterThanOr) {
  EXPECT_TRUE(Holds("acc > 2 and missing or acc"));
  EXPECT_TRUE(Holds("acc or acc > 2 and missing"));
  EXPECT_FALSE(Holds("(acc or acc > 2) and missing"));
  EXPECT_TRUE(Holds("not missing and acc"));
  EXPECT_FALSE(Holds("not (not missing and acc)"));
  EXPECT_TRUE(Holds("NOT not acc AND(acc)OR missing"));
  EXPECT_TRUE(Holds("acc>0.5 and acc<1"));
}

TEST(Expression, WordsOfTheLanguageCanBeQuoted) {
  EXPECT_FALSE(Holds("name = 'and'"));
  EXPECT_FALSE(Holds("name = \"it's\""));
  EXPECT_FALSE(Holds("name = ''"));
}

TEST(Expression, ErrorsSayWhereWhatAndWhatWasExpected) {
  EXPECT_EQ(ErrorOf(""),
            "character 1: found the end, expected a field, such as state or "
            "test.accuracy, not or '('");
  EXPECT_EQ(ErrorOf("acc >"),
            "character 6: found the end, expected a value: a number, a word, or "
            "a text in quotes");
  EXPECT_EQ(ErrorOf("acc > abc"),
            "character 7: found 'abc', expected a number such as 0.9, since 'acc' is one");
  EXPECT_THAT(ErrorOf("acc > nan"), HasSubstr("expected a number"));
  EXPECT_EQ(ErrorOf("acc > 1 took"), "character 9: found 'took', expected and, or, or the end");
  EXPECT_EQ(ErrorOf("(acc > 1"), "character 9: found the end, expected and, or, or ')'");
  EXPECT_EQ(ErrorOf("acc)"), "character 4: found ')', expected and, or, or the end");
  EXPECT_EQ(ErrorOf("nam = x"), "character 1: found 'nam', expected a field; did you mean 'name'?");
  EXPECT_THAT(ErrorOf("took > 2"), HasSubstr("character 8: found '2', expected a duration"));
  EXPECT_THAT(ErrorOf("size > big"), HasSubstr("a size such as 4GiB"));
  EXPECT_THAT(ErrorOf("created > yesterday"), HasSubstr("a time such as 2026-11-27"));
  EXPECT_EQ(ErrorOf("state = done"), "character 9: found 'done', expected running, failed");
  EXPECT_THAT(ErrorOf("name < x"), HasSubstr("'name' has no order"));
  EXPECT_THAT(ErrorOf("tag > x"), HasSubstr("'tag' has no order"));
  EXPECT_THAT(ErrorOf("acc ~ 9"), HasSubstr("'acc' is no text"));
  EXPECT_THAT(ErrorOf("name = 'open"), HasSubstr("character 8: the text in quotes does not end"));
  EXPECT_THAT(ErrorOf("acc ! 1"), HasSubstr("character 5: found '!', expected !="));
  EXPECT_THAT(ErrorOf("acc & name"), HasSubstr("character 5: found '&'"));
  EXPECT_THAT(ErrorOf("acc ~= 1"), HasSubstr("character 5: found '~'"));
  EXPECT_THAT(ErrorOf("acc = = 1"), HasSubstr("character 7: found '=', expected a value"));
  EXPECT_THAT(ErrorOf("and acc"), HasSubstr("character 1: found 'and'"));
  EXPECT_THAT(ErrorOf("acc and"), HasSubstr("found the end"));
  EXPECT_THAT(ErrorOf("= 1"), HasSubstr("character 1: found '='"));
  EXPECT_THAT(ErrorOf("'name' = x"), HasSubstr("character 1: found 'name', expected a field"));
}

TEST(Expression, LengthAndDepthHaveLimits) {
  std::string wide = "acc";
  while (wide.size() + 8 <= kExpressionBytesMax) wide += " and acc";
  EXPECT_TRUE(Holds(wide));
  EXPECT_THAT(ErrorOf(wide + std::string(kExpressionBytesMax, ' ')),
              HasSubstr("bytes; expected at most 1024"));
  const auto nested = [](int depth) {
    return absl::StrCat(std::string(static_cast<size_t>(depth), '('), "acc",
                        std::string(static_cast<size_t>(depth), ')'));
  };
  EXPECT_TRUE(Holds(nested(kDepthMax)));
  EXPECT_THAT(ErrorOf(nested(kDepthMax + 1)), HasSubstr("at most 32 parentheses"));
  std::string nots;
  for (int i = 0; i <= kDepthMax; ++i) nots += "not ";
  EXPECT_THAT(ErrorOf(nots + "acc"), HasSubstr("at most 32 parentheses"));
}

TEST(OrderTest, IsAFieldWithADirection) {
  const auto up = ParseOrder("acc", TypeOf);
  ASSERT_TRUE(up.ok());
  EXPECT_EQ(up->field, "acc");
  EXPECT_FALSE(up->is_descending);
  EXPECT_TRUE(ParseOrder("took desc", TypeOf)->is_descending);
  EXPECT_FALSE(ParseOrder("took asc", TypeOf)->is_descending);
  for (const char* text : {"", "acc down", "acc desc desc", "other", "tag", "'acc'"}) {
    EXPECT_FALSE(ParseOrder(text, TypeOf).ok()) << text;
  }
}

TEST(OrderTest, WhatIsMissingComesLast) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(ComesBefore(1.0, 2.0, false));
  EXPECT_TRUE(ComesBefore(2.0, 1.0, true));
  EXPECT_FALSE(ComesBefore(1.0, 1.0, false));
  EXPECT_TRUE(ComesBefore(std::string("a"), std::string("b"), false));
  EXPECT_TRUE(ComesBefore(std::string("b"), std::string("a"), true));
  for (const bool descending : {false, true}) {
    EXPECT_TRUE(ComesBefore(1.0, Value(), descending));
    EXPECT_FALSE(ComesBefore(Value(), 1.0, descending));
    EXPECT_FALSE(ComesBefore(Value(), Value(), descending));
    EXPECT_TRUE(ComesBefore(1.0, nan, descending));
    EXPECT_FALSE(ComesBefore(nan, 1.0, descending));
    EXPECT_FALSE(ComesBefore(nan, nan, descending));
    EXPECT_TRUE(ComesBefore(1.0, std::string("a"), descending));
    EXPECT_FALSE(ComesBefore(std::string("a"), 1.0, descending));
  }
}

}  // namespace
}  // namespace trainyard::filter
