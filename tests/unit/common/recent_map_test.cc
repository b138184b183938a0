// Tests that what is asked for stays, and that the rest goes.
#include "common/base/recent_map.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trainyard {
namespace {

using Pointer = std::shared_ptr<const std::string>;

Pointer Make(const std::string& text) {
  return std::make_shared<const std::string>(text);
}

TEST(RecentMap, KeepsTheNewestValueOfAKey) {
  RecentMap<std::string, Pointer> map(1000);
  EXPECT_EQ(map.Find("a"), std::nullopt);
  const Pointer first = Make("1");
  map.Put("a", first, 10);
  EXPECT_EQ(map.Find("a"), first);
  map.Put("a", Make("2"), 10);
  EXPECT_EQ(**map.Find("a"), "2");
  EXPECT_EQ(first.use_count(), 1) << "it is dropped";
}

TEST(RecentMap, DropsWhatIsNotAskedFor) {
  RecentMap<int, Pointer> map(1000);
  const Pointer wanted = Make("wanted");
  const Pointer other = Make("other");
  map.Put(0, wanted, 10);
  map.Put(1, other, 10);
  for (int i = 2; i < 1000; ++i) {
    map.Put(i, Make("new"), 10);
    EXPECT_EQ(map.Find(0), wanted) << i;
  }
  EXPECT_EQ(map.Find(1), std::nullopt);
  EXPECT_EQ(other.use_count(), 1);
}

TEST(RecentMap, AValueThatIsPutAgainCountsOnce) {
  RecentMap<int, Pointer> map(1000);
  map.Put(0, Make("first"), 10);
  for (int i = 0; i < 1000; ++i) map.Put(1, Make("again"), 10);
  EXPECT_NE(map.Find(0), std::nullopt);
}

TEST(RecentMap, HoldsNoMoreBytesThanItSays) {
  RecentMap<int, Pointer> map(1000);
  std::vector<std::weak_ptr<const std::string>> all;
  for (int i = 0; i < 1000; ++i) {
    const Pointer value = Make("value");
    all.push_back(value);
    map.Put(i, value, 10);
    size_t bytes = 0;
    for (const auto& one : all) bytes += one.expired() ? 0 : 10;
    EXPECT_LE(bytes, 1000u);
  }
}

TEST(RecentMap, ALargeValueIsNotKept) {
  RecentMap<int, Pointer> map(1000);
  map.Put(0, Make("small"), 10);
  map.Put(1, Make("large"), 11);
  EXPECT_EQ(map.Find(1), std::nullopt);
  EXPECT_NE(map.Find(0), std::nullopt);
}

TEST(RecentMap, ManyThreadsUseIt) {
  RecentMap<int, Pointer> map(1000);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&map] {
      for (int i = 0; i < 10'000; ++i) {
        const int key = i % 150;
        const auto found = map.Find(key);
        if (found.has_value()) {
          EXPECT_EQ(**found, std::to_string(key));
        }
        map.Put(key, Make(std::to_string(key)), 10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trainyard
