// Tests what distributions accept, and the values that they give.
#include "common/sweep/distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::sweep {
namespace {

using ::testing::ElementsAre;

Distribution Parsed(const std::string& text) {
  absl::StatusOr<Distribution> distribution = Distribution::Parse(text);
  EXPECT_TRUE(distribution.ok()) << distribution.status();
  return distribution.ok() ? *distribution : Distribution();
}

std::string MistakeIn(const std::string& text) {
  const absl::StatusOr<Distribution> distribution = Distribution::Parse(text);
  if (distribution.ok()) return "none";
  EXPECT_EQ(distribution.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(distribution.status().message());
}

std::vector<std::string> GridOf(const std::string& text) {
  const Distribution distribution = Parsed(text);
  std::vector<std::string> points;
  for (int64_t i = 0; i < distribution.grid_size(); ++i) {
    points.push_back(distribution.GridPoint(i));
  }
  return points;
}

std::vector<std::string> ValuesOf(const std::string& text) {
  const Distribution distribution = Parsed(text);
  std::vector<std::string> values;
  for (int64_t i = 0; i < distribution.distinct(); ++i) values.push_back(distribution.Distinct(i));
  return values;
}

TEST(Distribution, ScalesGoFromTheirLowToTheirHighEnd) {
  EXPECT_EQ(Parsed("log(1e-4, 1)").At(0), "0.0001");
  EXPECT_EQ(Parsed("log(1e-4, 1)").At(0.5), "0.01");
  EXPECT_EQ(Parsed("log(1e-5, 1)").At(0.5), "0.00316227766017");
  EXPECT_EQ(Parsed("log(1e-4, 1)").At(1), "1");
  EXPECT_EQ(Parsed(" uniform( 0 ,.5 ) ").At(0.3), "0.15");
  EXPECT_EQ(Parsed("uniform(-2, 2)").At(0.5), "0");
  EXPECT_EQ(Parsed("uniform(-1e308, 1e308)").At(0.5), "0");
  EXPECT_EQ(Parsed("int(2, 8)").At(0), "2");
  EXPECT_EQ(Parsed("int(2, 8)").At(0.99999), "8");
  EXPECT_EQ(Parsed("int(-1e3, 1e6)").At(1), "1000000");
  EXPECT_EQ(Parsed("log_int(16, 512)").At(0), "16");
  EXPECT_EQ(Parsed("log_int(16, 512)").At(0.999999), "512");
}

TEST(Distribution, QuantilesOutsideOfTheirRangeAreCutToIt) {
  for (const char* text : {"uniform(1, 2)", "log(1, 2)", "int(1, 2)", "log_int(1, 2)", "[1, 2]"}) {
    EXPECT_EQ(Parsed(text).At(-1), "1") << text;
    EXPECT_EQ(Parsed(text).At(std::nan("")), "1") << text;
    EXPECT_EQ(Parsed(text).At(7), "2") << text;
  }
}

TEST(Distribution, NarrowScalesKeepAllDigits) {
  EXPECT_EQ(Parsed("uniform(1, 1.0000000000001)").At(0.5), "1.00000000000005");
}

TEST(Distribution, EachIntegerIsAsProbableAsTheNext) {
  std::map<std::string, int> counts;
  const Distribution integers = Parsed("int(2, 8)");
  for (int i = 0; i < 7000; ++i) ++counts[integers.At((i + 0.5) / 7000)];
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 1000, 1) << value;
  EXPECT_EQ(counts.size(), 7u);
}

TEST(Distribution, IntegersOfALogarithmicScaleAreAsProbableAsTheirWeights) {
  const Distribution integers = Parsed("log_int(1, 100)");
  std::map<std::string, double> shares;
  for (int i = 0; i < 100'000; ++i) shares[integers.At((i + 0.5) / 100'000)] += 1e-5;
  double sum = 0;
  for (int64_t i = 0; i < 100; ++i) sum += integers.Weight(i);
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(shares[integers.Distinct(i)], integers.Weight(i) / sum, 2e-5) << i;
  }
  EXPECT_EQ(shares.size(), 100u);
}

TEST(Distribution, ChoicesAreJson) {
  EXPECT_THAT(ValuesOf("choice(relu, gelu)"), ElementsAre("\"relu\"", "\"gelu\""));
  EXPECT_THAT(ValuesOf("choice(1, 2.0, 1e3, .5, 1e-7, -0.0)"),
              ElementsAre("1", "2", "1000", "0.5", "1e-07", "0"));
  EXPECT_THAT(ValuesOf("choice(true, False, \"true\", \"a, b)\", \"\\\"\")"),
              ElementsAre("true", "false", "\"true\"", "\"a, b)\"", "\"\\\"\""));
  EXPECT_THAT(ValuesOf("choice([1, 2], {\"b\": [3, \"]\"], \"a\": 1}, imagenet/v2.1, nan)"),
              ElementsAre("[1,2]", "{\"a\":1,\"b\":[3,\"]\"]}", "\"imagenet/v2.1\"", "\"nan\""));
  EXPECT_THAT(ValuesOf("[32, 64, \"x\"]"), ElementsAre("32", "64", "\"x\""));
  EXPECT_THAT(ValuesOf("[[[]], []]"), ElementsAre("[[]]", "[]"));
  EXPECT_THAT(ValuesOf("[18446744073709551615, 9007199254740993]"),
              ElementsAre("18446744073709551615", "9007199254740993"));
  EXPECT_EQ(Parsed("choice(a, b, c)").At(0.34), "\"b\"");
}

TEST(Distribution, GridsAreEvenlySpacedOnTheScaleWithBothEnds) {
  EXPECT_THAT(GridOf("log(1e-4, 1, 5)"), ElementsAre("0.0001", "0.001", "0.01", "0.1", "1"));
  EXPECT_THAT(GridOf("uniform(0, 0.5, 6)"), ElementsAre("0", "0.1", "0.2", "0.3", "0.4", "0.5"));
  EXPECT_THAT(GridOf("int(2, 8, 3)"), ElementsAre("2", "5", "8"));
  EXPECT_THAT(GridOf("log_int(16, 512, 6)"), ElementsAre("16", "32", "64", "128", "256", "512"));
  EXPECT_THAT(GridOf("log(1, 100, 1)"), ElementsAre("10"));
  EXPECT_THAT(GridOf("int(2, 8, 1)"), ElementsAre("5"));
  EXPECT_THAT(GridOf("choice(a, b)"), ElementsAre("\"a\"", "\"b\""));
  EXPECT_THAT(GridOf("log(1, 2)"), ElementsAre());
}

TEST(Distribution, IntegersOfAGridAreAllDifferent) {
  for (int high = 2; high <= 40; ++high) {
    for (int points = 1; points <= high; ++points) {
      for (const char* scale : {"log_int", "int"}) {
        const auto grid = GridOf(absl::StrCat(scale, "(1, ", high, ", ", points, ")"));
        EXPECT_EQ(std::set<std::string>(grid.begin(), grid.end()).size(), grid.size())
            << absl::StrJoin(grid, " ");
        if (points < 2) continue;
        EXPECT_EQ(grid.front(), "1");
        EXPECT_EQ(grid.back(), absl::StrCat(high));
      }
    }
  }
}

TEST(Distribution, NeighboursAreAFifthAwayAndWithinTheBounds) {
  EXPECT_EQ(Parsed("log(1e-4, 1)").Neighbour("0.01", true), "0.012");
  EXPECT_EQ(Parsed("log(1e-4, 1)").Neighbour("0.012", false), "0.01");
  EXPECT_EQ(Parsed("log(1e-4, 1)").Neighbour("0.9", true), "1");
  EXPECT_EQ(Parsed("log(1e-4, 1)").Neighbour("0.00011", false), "0.0001");
  EXPECT_EQ(Parsed("uniform(-4, 4)").Neighbour("-1.2", true), "-1");
  EXPECT_EQ(Parsed("uniform(-4, 4)").Neighbour("-1", false), "-1.2");
  EXPECT_EQ(Parsed("int(1, 8)").Neighbour("2", true), "3");
  EXPECT_EQ(Parsed("int(1, 8)").Neighbour("2", false), "1");
  EXPECT_EQ(Parsed("int(1, 8)").Neighbour("1", false), "1");
  EXPECT_EQ(Parsed("int(-9, 8)").Neighbour("0", false), "-1");
  EXPECT_EQ(Parsed("log_int(16, 512)").Neighbour("100", true), "120");
  EXPECT_EQ(Parsed("log_int(16, 512)").Neighbour("500", true), "512");
  EXPECT_EQ(Parsed("choice(a, b, c)").Neighbour("\"b\"", true), "\"c\"");
  EXPECT_EQ(Parsed("choice(a, b, c)").Neighbour("\"b\"", false), "\"a\"");
  EXPECT_EQ(Parsed("choice(a, b, c)").Neighbour("\"c\"", true), "\"c\"");
  EXPECT_EQ(Parsed("[0.10, 0.2]").Neighbour("0.1", true), "0.2");
  EXPECT_EQ(Parsed("choice(a, b)").Neighbour("\"other\"", true), "\"a\"");
  EXPECT_EQ(Parsed("log(1, 100)").Neighbour("\"other\"", true), "10");
}

TEST(Distribution, PlacesAreOnTheScale) {
  EXPECT_DOUBLE_EQ(Parsed("log(1e-4, 1)").PlaceOf("0.001"), 0.25);
  EXPECT_DOUBLE_EQ(Parsed("log(1e-300, 1e300)").PlaceOf("1"), 0.5);
  EXPECT_DOUBLE_EQ(Parsed("uniform(0, 0.5)").PlaceOf("0.1"), 0.2);
  EXPECT_DOUBLE_EQ(Parsed("uniform(-1e308, 1e308)").PlaceOf("0"), 0.5);
  EXPECT_DOUBLE_EQ(Parsed("int(2, 8)").PlaceOf("8"), 1);
  EXPECT_DOUBLE_EQ(Parsed("int(2, 8)").PlaceOf("9"), 1);
  EXPECT_DOUBLE_EQ(Parsed("log_int(1, 16)").PlaceOf("4"), 0.5);
  EXPECT_DOUBLE_EQ(Parsed("choice(a, b, c)").PlaceOf("\"b\""), 0.5);
  EXPECT_DOUBLE_EQ(Parsed("choice(a)").PlaceOf("\"a\""), 0);
  EXPECT_DOUBLE_EQ(Parsed("int(2, 8)").PlaceOf("\"x\""), 0);
}

TEST(Distribution, NumbersReadBackTheSame) {
  for (const char* text : {"log(1e-320, 1e-3)", "uniform(-1e20, 1e20)", "uniform(0, 1e-9)"}) {
    for (int i = 0; i < 1000; ++i) {
      const std::string value = Parsed(text).At(i / 1000.0);
      const nlohmann::json read = nlohmann::json::parse(value);
      double number = 0;
      ASSERT_TRUE(absl::SimpleAtod(value, &number));
      EXPECT_EQ(read.get<double>(), number);
      EXPECT_LE(value.size(), 19u) << value;
    }
  }
}

TEST(Distribution, MistakesAreExplained) {
  EXPECT_EQ(MistakeIn("log(0, 1)"), "'log(0, 1)' begins at 0; expected a number above 0");
  EXPECT_EQ(MistakeIn("log_int(-2, 8)"),
            "'log_int(-2, 8)' begins at -2; expected a number above 0");
  EXPECT_EQ(MistakeIn("int(8, 2)"), "'int(8, 2)' goes from 8 to 2; expected LOW below HIGH");
  EXPECT_EQ(MistakeIn("uniform(1, 1)"),
            "'uniform(1, 1)' goes from 1 to 1; expected LOW below HIGH");
  EXPECT_EQ(MistakeIn("int(1.5, 2)"),
            "'int(1.5, 2)' has the bound 1.5; expected an integer from -2^53 to 2^53");
  EXPECT_EQ(MistakeIn("log(1)"),
            "'log(1)' has 1 argument; expected LOW and HIGH, and for a grid its number of points");
  EXPECT_THAT(MistakeIn("log()"), ::testing::StartsWith("'log()' has 0 arguments; expected LOW"));
  EXPECT_THAT(MistakeIn("log(1, 2, 3, 4)"), ::testing::HasSubstr("has 4 arguments"));
  EXPECT_EQ(MistakeIn("log(1, x)"), "'log(1, x)' has 'x'; expected a number");
  EXPECT_EQ(MistakeIn("log(1, inf)"), "'log(1, inf)' has 'inf'; expected a number");
  EXPECT_EQ(MistakeIn("log(1, 1e999)"), "'log(1, 1e999)' has '1e999'; expected a number");
  EXPECT_EQ(MistakeIn("log(1, )"), "'log(1, )' has ''; expected a number");
  EXPECT_EQ(MistakeIn("log(1, 2, 0)"), "'log(1, 2, 0)' has 0 grid points; expected 1 to 1000");
  EXPECT_EQ(MistakeIn("log(1, 2, 1000)"), "none");
  EXPECT_THAT(MistakeIn("log(1, 2, 1001)"), ::testing::HasSubstr("1001 grid points"));
  EXPECT_THAT(MistakeIn("log(1, 2, 2.5)"), ::testing::HasSubstr("2.5 grid points"));
  EXPECT_EQ(MistakeIn("int(2, 4, 9)"),
            "'int(2, 4, 9)' has 9 grid points; expected at most 3, the number of its integers");
  EXPECT_EQ(MistakeIn("unifrom(0, 1)"),
            "'unifrom(0, 1)' begins with no known distribution; did you mean 'uniform'?");
  EXPECT_THAT(MistakeIn("gaussian(0, 1)"),
              ::testing::StartsWith("'gaussian(0, 1)' begins with no known distribution; "
                                    "expected log(LOW, HIGH), uniform(LOW, HIGH), "));
  EXPECT_THAT(MistakeIn("0.1"), ::testing::StartsWith("'0.1' is one value; expected log(LOW"));
  EXPECT_THAT(MistakeIn("  "), ::testing::StartsWith("'' is empty; expected log(LOW"));
  EXPECT_THAT(MistakeIn("log(1, 2"), ::testing::StartsWith("'log(1, 2' does not end with ')'"));
}

TEST(Distribution, MistakesInChoicesAreExplained) {
  EXPECT_EQ(MistakeIn("choice()"), "'choice()' has 0 values; expected 1 to 1000");
  EXPECT_EQ(MistakeIn("[]"), "'[]' has 0 values; expected 1 to 1000");
  EXPECT_EQ(MistakeIn("[1, 2"), "'[1, 2' lacks its last ']'");
  EXPECT_EQ(MistakeIn("choice(a, a)"), "'choice(a, a)' has \"a\" twice; expected different values");
  EXPECT_EQ(MistakeIn("[1, 1.0]"), "'[1, 1.0]' has 1 twice; expected different values");
  EXPECT_EQ(
      MistakeIn("choice({\"a\":1,\"b\":2}, {\"b\":2, \"a\":1})").find("twice") == std::string::npos,
      false);
  EXPECT_EQ(MistakeIn("choice(a,,b)"),
            "'choice(a,,b)' has nothing between two commas; expected a value");
  EXPECT_EQ(MistakeIn("choice(null)"),
            "'null' is no value to search; expected a number, true, false, a text, a list or an "
            "object");
  EXPECT_THAT(MistakeIn("choice('a')"), ::testing::StartsWith("''a'' is neither JSON nor a word"));
  EXPECT_THAT(MistakeIn("choice([1)"), ::testing::StartsWith("'[1' is neither JSON nor a word"));
  EXPECT_EQ(MistakeIn("choice(1e999)"), "'1e999' is too large; expected a number below 1.8e308");
  EXPECT_THAT(MistakeIn("choice(\xff)"), ::testing::HasSubstr("is neither JSON nor a word"));
  const std::string deep = std::string(17, '[') + std::string(17, ']');
  EXPECT_THAT(MistakeIn(absl::StrCat("choice(", deep, ")")),
              ::testing::HasSubstr("is nested too deeply; expected at most 16 levels"));
  EXPECT_EQ(MistakeIn(absl::StrCat("choice(", deep.substr(1, 32), ")")), "none");
}

TEST(Distribution, ThereAreAtMostAThousandChoices) {
  std::vector<int> choices;
  for (int i = 0; i < 1000; ++i) choices.push_back(i);
  EXPECT_EQ(MistakeIn(absl::StrCat("[", absl::StrJoin(choices, ","), "]")), "none");
  choices.push_back(1000);
  EXPECT_THAT(MistakeIn(absl::StrCat("[", absl::StrJoin(choices, ","), "]")),
              ::testing::EndsWith("has 1001 values; expected 1 to 1000"));
}

}  // namespace
}  // namespace trainyard::sweep
