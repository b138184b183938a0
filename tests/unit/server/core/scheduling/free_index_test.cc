// Tests the index of free slots.
#include "server/core/scheduling/free_index.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::core {
namespace {

TEST(FreeIndex, FindsTheFirstWithACountFromAPlaceOn) {
  const FreeIndex index({2, 0, 2, 1}, 3);
  EXPECT_EQ(index.Find(2, 0), 0);
  EXPECT_EQ(index.Find(2, 1), 2);
  EXPECT_EQ(index.Find(2, 3), -1);
  EXPECT_EQ(index.Find(3, 0), -1);
  EXPECT_EQ(index.largest(), 3);
}

TEST(FreeIndex, AnEmptyOneFindsNothing) {
  EXPECT_EQ(FreeIndex({}, 0).Find(0, 0), -1);
}

// Compares an index of several words of bits with a search through all slots.
TEST(FreeIndex, FollowsChanges) {
  constexpr int kItems = 200;
  constexpr int32_t kLargest = 4;
  std::vector<int32_t> counts(kItems, 0);
  FreeIndex index(counts, kLargest);
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    const auto item = static_cast<size_t>(random() % kItems);
    const auto count = static_cast<int32_t>(random() % (kLargest + 1));
    index.Change(static_cast<int32_t>(item), count - counts[item]);
    counts[item] = count;
    const auto wanted = static_cast<int32_t>(random() % (kLargest + 1));
    // A search may also begin at the place after the last one.
    const auto from = static_cast<int32_t>(random() % (kItems + 1));
    int32_t expected = -1;
    for (int32_t i = from; i < kItems && expected < 0; ++i) {
      if (counts[static_cast<size_t>(i)] == wanted) expected = i;
    }
    ASSERT_EQ(index.Find(wanted, from), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace trainyard::core
