// Tests what follows from a definition alone.
#include "server/core/sweeping/record.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainyard::core::sweeping {
namespace {

TEST(Record, OnlySearchesThatCompareTrialsOnTheirWayHaveRungs) {
  EXPECT_EQ(RungCount({.search = Search::kAsha, .rungs = 3}), 3);
  EXPECT_EQ(RungCount({.search = Search::kPbt, .rungs = 7}), 7);
  EXPECT_EQ(RungCount({.search = Search::kGrid, .rungs = 3}), 1);
  EXPECT_EQ(RungCount({.search = Search::kRandom, .rungs = 3}), 1);
}

TEST(Record, RungsOfAshaGrowByTheFactorAndThoseOfPbtAreEqualParts) {
  const Definition asha = {.search = Search::kAsha, .factor = 4, .rungs = 3};
  EXPECT_DOUBLE_EQ(RungShare(asha, 0), 1.0 / 16);
  EXPECT_DOUBLE_EQ(RungShare(asha, 1), 0.25);
  EXPECT_DOUBLE_EQ(RungShare(asha, 2), 1);
  const Definition pbt = {.search = Search::kPbt, .rungs = 5};
  EXPECT_DOUBLE_EQ(RungShare(pbt, 0), 0.2);
  EXPECT_DOUBLE_EQ(RungShare(pbt, 4), 1);
  EXPECT_DOUBLE_EQ(RungShare({.search = Search::kGrid}, 0), 1);
}

TEST(Record, ThereAreAsManyRungsAsTrialsCanFill) {
  EXPECT_EQ(DefaultRungs(1, 4), 1);
  EXPECT_EQ(DefaultRungs(3, 4), 1);
  EXPECT_EQ(DefaultRungs(4, 4), 2);
  EXPECT_EQ(DefaultRungs(9, 3), 3);
  EXPECT_EQ(DefaultRungs(26, 3), 3);
  EXPECT_EQ(DefaultRungs(27, 3), 4);
  EXPECT_EQ(DefaultRungs(2'147'483'647, 2), 31);
}

TEST(Record, EntriesAreEqualIfAllOfThemIsAndTwoNansAre) {
  const Entry nan = {.kind = EntryKind::kSucceeded, .trial = 1, .value = std::nan("")};
  EXPECT_EQ(nan, nan);
  EXPECT_NE(nan, (Entry{.kind = EntryKind::kSucceeded, .trial = 1}));
  EXPECT_NE(nan, (Entry{.kind = EntryKind::kSucceeded, .trial = 2, .value = std::nan("")}));
  EXPECT_NE((Entry{.text = "a"}), (Entry{.text = "b"}));
}

}  // namespace
}  // namespace trainyard::core::sweeping
