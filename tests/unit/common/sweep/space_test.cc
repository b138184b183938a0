// Tests grids and draws. Some draws are frozen: trials of old sweeps keep their values for ever.
#include "common/sweep/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace trainyard::sweep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Space SpaceOf(const std::map<std::string, std::string>& parameters) {
  std::vector<Space::Mistake> mistakes;
  Space space = Space::Parse(parameters, mistakes);
  EXPECT_THAT(mistakes, ElementsAre());
  return space;
}

double NumberOf(const std::string& text) {
  double number = 0;
  EXPECT_TRUE(absl::SimpleAtod(text, &number)) << text;
  return number;
}

// Returns the largest distance between the distribution of the sorted `places` and the uniform one.
double DistanceFromUniform(std::vector<double> places) {
  std::sort(places.begin(), places.end());
  const double n = static_cast<double>(places.size());
  double distance = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const double below = static_cast<double>(i) / n;
    distance = std::max({distance, places[i] - below, below + 1 / n - places[i]});
  }
  return distance;
}

TEST(Space, MistakesAreGivenByPathAndTheRestIsKept) {
  std::vector<Space::Mistake> mistakes;
  const Space space =
      Space::Parse({{"a", "log(0, 1)"}, {"b", "[1, 2]"}, {"c", "choice()"}}, mistakes);
  EXPECT_THAT(mistakes, ElementsAre(Pair("a", "'log(0, 1)' begins at 0; expected a number above 0"),
                                    Pair("c", "'choice()' has 0 values; expected 1 to 1000")));
  EXPECT_EQ(space.parameters().size(), 1u);
}

TEST(Space, TheLastParameterOfAGridChangesFastest) {
  const Space space = SpaceOf({{"lr", "log(0.01, 1, 3)"}, {"act", "choice(relu, gelu)"}});
  ASSERT_EQ(space.grid_size(), 6);
  std::vector<std::string> points;
  for (int64_t i = 0; i < 6; ++i) {
    const Values values = space.GridPoint(i);
    points.push_back(absl::StrCat(values.at("act"), " ", values.at("lr")));
  }
  EXPECT_THAT(points, ElementsAre("\"relu\" 0.01", "\"relu\" 0.1", "\"relu\" 1", "\"gelu\" 0.01",
                                  "\"gelu\" 0.1", "\"gelu\" 1"));
}

TEST(Space, SizesAreCounted) {
  EXPECT_EQ(SpaceOf({{"a", "log(1, 2)"}, {"b", "[1, 2]"}}).grid_size(), 0);
  EXPECT_EQ(SpaceOf({{"a", "log(1, 2)"}, {"b", "[1, 2]"}}).distinct(), 0);
  EXPECT_EQ(SpaceOf({{"a", "int(1, 6)"}, {"b", "[1, 2]"}}).distinct(), 12);
  EXPECT_EQ(SpaceOf({{"a", "uniform(1, 2, 100)"}, {"b", "int(1, 100, 100)"}}).grid_size(), 10'000);
  EXPECT_EQ(SpaceOf({{"a", "uniform(1, 2, 73)"}, {"b", "int(1, 137, 137)"}}).grid_size(), 10'001);
  EXPECT_EQ(SpaceOf({{"a", "int(-9e15, 9e15)"}, {"b", "int(-9e15, 9e15)"}}).distinct(), 10'001);
  EXPECT_EQ(SpaceOf({{"a", "int(1, 20000)"}, {"b", "uniform(1, 2)"}}).distinct(), 0)
      << "however large the others are";
  std::map<std::string, std::string> many;
  for (int i = 0; i < 32; ++i) many[absl::StrCat("p", i)] = "int(1, 1000, 1000)";
  EXPECT_EQ(SpaceOf(many).grid_size(), 10'001);
}

TEST(Space, DrawsAreTheSameForEver) {
  const Space space = SpaceOf({{"lr", "log(1e-4, 1)"},
                               {"depth", "int(2, 8)"},
                               {"width", "log_int(16, 512)"},
                               {"act", "choice(relu, gelu)"},
                               {"drop", "uniform(0, 0.5)"}});
  std::vector<std::string> drawn;
  for (const auto& [seed, trial] : std::vector<std::pair<uint64_t, int64_t>>{
           {0, 0}, {0, 1}, {0, 9999}, {1, 0}, {9007199254740991, 3}}) {
    const Values v = space.Draw(seed, trial);
    drawn.push_back(absl::StrCat(v.at("act"), " ", v.at("depth"), " ", v.at("drop"), " ",
                                 v.at("lr"), " ", v.at("width")));
  }
  EXPECT_THAT(drawn, ElementsAre("\"relu\" 7 0.253200244349 0.000112706198203 244",
                                 "\"gelu\" 2 0.0535843949632 0.0317591506017 231",
                                 "\"gelu\" 6 0.165915384177 0.295641587733 143",
                                 "\"gelu\" 7 0.397426630445 0.000422887708084 19",
                                 "\"gelu\" 4 0.294871717992 0.110309420054 199"));
}

TEST(Space, OrdersOfFinitePointsAreTheSameForEver) {
  const Space space = SpaceOf({{"depth", "int(1, 3)"}, {"act", "choice(a, b)"}});
  std::vector<std::string> drawn;
  for (int64_t trial = 0; trial < 7; ++trial) {
    const Values v = space.Draw(1, trial);
    drawn.push_back(absl::StrCat(v.at("act"), v.at("depth")));
  }
  EXPECT_THAT(drawn,
              ElementsAre("\"b\"1", "\"b\"2", "\"a\"2", "\"b\"3", "\"a\"3", "\"a\"1", "\"b\"1"));
}

TEST(Space, ExplorationIsTheSameForEver) {
  const Space space = SpaceOf({{"lr", "log(1e-4, 1)"}, {"depth", "int(2, 8)"}});
  std::vector<std::string> explored;
  for (int64_t generation = 1; generation < 7; ++generation) {
    const Values v = space.Explore({{"lr", "0.01"}, {"depth", "4"}}, 9, 2, generation);
    explored.push_back(absl::StrCat(v.at("depth"), " ", v.at("lr")));
  }
  EXPECT_THAT(explored,
              ElementsAre("5 0.00833333333333", "6 0.000429893053588", "6 0.00833333333333",
                          "5 0.00833333333333", "5 0.00833333333333", "3 0.012"));
}

TEST(Space, AParameterIsDrawnAlikeWhateverTheOthersAre) {
  const Space alone = SpaceOf({{"lr", "log(1e-4, 1)"}});
  const Space both = SpaceOf({{"lr", "log(1e-4, 1)"}, {"a", "int(1, 3)"}});
  EXPECT_EQ(alone.Draw(1, 2).at("lr"), both.Draw(1, 2).at("lr"));
}

// For 2,000 draws, the Kolmogorov distance is above 1.95 / sqrt(2000) once in a thousand times.
TEST(Space, DrawsAreUniformOnTheScale) {
  const Space space =
      SpaceOf({{"log", "log(1e-4, 1)"}, {"uniform", "uniform(-1, 3)"}, {"int", "int(0, 999999)"}});
  std::map<std::string, std::vector<double>> places;
  std::map<std::string, std::vector<double>> places_by_seed;
  for (int64_t i = 0; i < 2000; ++i) {
    for (const auto& [path, value] : space.Draw(42, i)) {
      places[path].push_back(space.parameters().at(path).PlaceOf(value));
    }
    for (const auto& [path, value] : space.Draw(static_cast<uint64_t>(i), 0)) {
      places_by_seed[path].push_back(space.parameters().at(path).PlaceOf(value));
    }
  }
  const double bound = 1.95 / std::sqrt(2000.0);
  for (const char* path : {"log", "uniform", "int"}) {
    EXPECT_LT(DistanceFromUniform(places[path]), bound) << path;
    EXPECT_LT(DistanceFromUniform(places_by_seed[path]), bound) << path;
  }
}

TEST(Space, ParametersAndTrialsAreDrawnIndependently) {
  const Space space = SpaceOf({{"a", "uniform(-1, 1)"}, {"b", "uniform(-1, 1)"}});
  double across = 0;
  double along = 0;
  double before = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    const Values values = space.Draw(3, i);
    const double a = NumberOf(values.at("a"));
    across += a * NumberOf(values.at("b"));
    along += a * before;
    before = a;
  }
  // The variance of a product is 1/9, so the sum has a standard deviation of 15.
  EXPECT_LT(std::abs(across), 60);
  EXPECT_LT(std::abs(along), 60);
}

TEST(Space, AFiniteSpaceIsDrawnWithoutRepetition) {
  for (const char* scale : {"int(1, 40)", "log_int(1, 40)"}) {
    const Space space = SpaceOf({{"a", scale}, {"b", "choice(x, y, z)"}});
    ASSERT_EQ(space.distinct(), 120);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      std::set<Values> drawn;
      for (int64_t i = 0; i < 120; ++i) drawn.insert(space.Draw(seed, i));
      EXPECT_EQ(drawn.size(), 120u);
      EXPECT_EQ(space.Draw(seed, 120), space.Draw(seed, 0));
    }
  }
}

TEST(Space, TheLargestSpaceThatIsDrawnWithoutRepetitionHasTenThousandPoints) {
  const Space space = SpaceOf({{"a", "int(1, 100)"}, {"b", "int(1, 100)"}});
  EXPECT_EQ(space.distinct(), kGridPointsMax);
  std::set<Values> drawn;
  for (int64_t i = 0; i < 200; ++i) drawn.insert(space.Draw(7, i * 50));
  EXPECT_EQ(drawn.size(), 200u);
}

TEST(Space, TheFirstDrawOfAFiniteSpaceHasTheProbabilitiesOfTheScale) {
  const Space space = SpaceOf({{"a", "log_int(1, 64)"}, {"b", "[1, 2]"}});
  int below_eight = 0;
  int first = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Values values = space.Draw(seed, 0);
    below_eight += NumberOf(values.at("a")) < 8 ? 1 : 0;
    first += values.at("b") == "1" ? 1 : 0;
  }
  // The standard deviations are 22, and the bounds four times that.
  EXPECT_NEAR(below_eight, 2000 * std::log(7.5 / 0.5) / std::log(64.5 / 0.5), 90);
  EXPECT_NEAR(first, 1000, 90);
}

TEST(Space, AQuarterOfTheExploredValuesIsDrawnAnewAndTheOthersAreNeighbours) {
  const Space space = SpaceOf({{"lr", "log(1e-4, 1)"}});
  int up = 0;
  int down = 0;
  std::vector<double> redrawn;
  for (int64_t generation = 0; generation < 8000; ++generation) {
    const std::string value = space.Explore({{"lr", "0.01"}}, 1, 0, generation).at("lr");
    if (value == "0.012") {
      ++up;
    } else if (value == "0.00833333333333") {
      ++down;
    } else {
      redrawn.push_back(space.parameters().at("lr").PlaceOf(value));
    }
  }
  EXPECT_NEAR(up, 3000, 180);
  EXPECT_NEAR(down, 3000, 180);
  EXPECT_NEAR(static_cast<double>(redrawn.size()), 2000, 160);
  EXPECT_LT(DistanceFromUniform(redrawn), 1.95 / std::sqrt(1800.0));
}

TEST(Space, AValueThatIsMissingIsDrawn) {
  const Space space = SpaceOf({{"lr", "log(1e-4, 1)"}});
  EXPECT_EQ(space.Explore({{"other", "1"}}, 1, 0, 1).size(), 1u);
}

}  // namespace
}  // namespace trainyard::sweep
