// Tests when memory is given back, and when connections are closed for it.
#include "server/memory_watch.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <vector>

namespace trainyard {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class MemoryWatchTest : public ::testing::Test {
 protected:
  void Look(int64_t resident, int64_t in_use) {
    memory_ = {resident * kMiB, in_use * kMiB};
    watch_.Look();
  }

  Memory memory_;
  // Trimming cannot give this back, because it lies between what is in use.
  int64_t stuck_ = 10 * kMiB;
  int trims_ = 0;
  int closed_ = 0;
  MemoryWatch watch_{{.read = [this] { return memory_; },
                      .trim =
                          [this] {
                            ++trims_;
                            memory_.resident = memory_.in_use + stuck_;
                          },
                      .close_connections = [this] { ++closed_; }},
                     1000 * kMiB};
};

TEST_F(MemoryWatchTest, MemoryThatIsNoLongerInUseIsGivenBackOnce) {
  Look(70, 60);
  EXPECT_EQ(trims_, 0);
  Look(660, 650);
  EXPECT_EQ(trims_, 0) << "all of it is in use";
  Look(660, 60);
  EXPECT_EQ(trims_, 1);
  Look(70, 60);
  Look(75, 60);
  EXPECT_EQ(trims_, 1);
}

TEST_F(MemoryWatchTest, WhatCannotBeGivenBackIsNotTriedAgainAndAgain) {
  stuck_ = 200 * kMiB;
  Look(660, 60);
  EXPECT_EQ(trims_, 1);
  Look(260, 60);
  Look(270, 60);
  EXPECT_EQ(trims_, 1);
  Look(300, 60);
  EXPECT_EQ(trims_, 2);
}

TEST_F(MemoryWatchTest, ConnectionsAreClosedAboveTheBound) {
  Look(1001, 1000);
  EXPECT_EQ(closed_, 1);
  Look(70, 60);
  EXPECT_EQ(closed_, 1);
  Look(1001, 1000);
  EXPECT_EQ(closed_, 2) << "the next flood is no better than the first";
}

TEST_F(MemoryWatchTest, MemoryThatConnectionsDoNotHoldRaisesTheBound) {
  Look(1100, 1090);
  Look(1100, 1090);
  Look(2190, 2180);
  EXPECT_EQ(closed_, 1);
  Look(2210, 2200);
  EXPECT_EQ(closed_, 2);
}

// A single block at the end of the heap keeps all that is below it, until it is trimmed.
TEST(ReadMemory, SeesWhatIsInUseAndWhatIsNot) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has taken the place of malloc, and says nothing of its memory";
#endif
  const Memory before = ReadMemory();
  EXPECT_GT(before.resident, 0);
  std::vector<std::unique_ptr<char[]>> blocks;
  for (int i = 0; i < 64 * 1024; ++i) blocks.push_back(std::make_unique<char[]>(1024));
  const std::unique_ptr<char[]> last = std::make_unique<char[]>(1024);
  const Memory full = ReadMemory();
  EXPECT_GT(full.resident, before.resident + 32 * kMiB);
  EXPECT_GT(full.in_use, before.in_use + 32 * kMiB);
  blocks.clear();
  malloc_trim(0);
  EXPECT_LT(ReadMemory().resident, full.resident - 32 * kMiB);
}

}  // namespace
}  // namespace trainyard
