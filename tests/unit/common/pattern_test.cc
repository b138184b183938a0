// Tests patterns of names.
#include "common/base/pattern.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(MatchesPattern, AStarStandsForAnyText) {
  EXPECT_TRUE(MatchesPattern("sweep-12", "sweep-*"));
  EXPECT_TRUE(MatchesPattern("sweep-12", "*-12"));
  EXPECT_TRUE(MatchesPattern("abcabd", "*ab*d"));
  EXPECT_TRUE(MatchesPattern("abc", "a*b*c*"));
  EXPECT_TRUE(MatchesPattern("", "*"));
  EXPECT_FALSE(MatchesPattern("abc", "ab"));
  EXPECT_FALSE(MatchesPattern("abc", "*b"));
  EXPECT_FALSE(MatchesPattern("", "a"));
  EXPECT_FALSE(MatchesPattern("abc", ""));
}

}  // namespace
}  // namespace trainyard
