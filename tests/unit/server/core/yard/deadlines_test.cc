// Tests the list of deadlines.
#include "server/core/yard/deadlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace trainyard::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Deadlines, TheEarliestIsAtHand) {
  Deadlines<std::string> deadlines;
  EXPECT_EQ(deadlines.Earliest(), std::nullopt);
  deadlines.Set("b", 20);
  deadlines.Set("a", 30);
  deadlines.Set("c", 30);
  EXPECT_EQ(deadlines.Earliest(), 20);
  EXPECT_THAT(deadlines.Due(19), IsEmpty());
  EXPECT_THAT(deadlines.Due(20), ElementsAre("b"));
  EXPECT_THAT(deadlines.Due(30), ElementsAre("a", "b", "c"));
}

TEST(Deadlines, ANewOneReplacesTheOldOne) {
  Deadlines<std::string> deadlines;
  deadlines.Set("a", 10);
  deadlines.Set("a", 40);
  EXPECT_EQ(deadlines.Earliest(), 40);
  EXPECT_THAT(deadlines.Due(39), IsEmpty());
  deadlines.Set("a", std::nullopt);
  deadlines.Set("b", std::nullopt);
  EXPECT_EQ(deadlines.Earliest(), std::nullopt);
  EXPECT_FALSE(deadlines.Has("a"));
}

}  // namespace
}  // namespace trainyard::core
