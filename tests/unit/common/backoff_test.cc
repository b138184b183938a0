// Tests the backoff: doubling, jitter, limit.
#include "common/base/backoff.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

class FixedRng : public Rng {
 public:
  explicit FixedRng(uint64_t value) : value_(value) {}
  uint64_t Next() override { return value_; }

 private:
  const uint64_t value_;
};

TEST(Backoff, DoublesUpToItsMaximum) {
  FixedRng lowest(0);
  Backoff backoff(absl::Seconds(1), absl::Seconds(5), lowest);
  // The lower end of each range is half of 1, 2, 4, 5, 5 ... seconds.
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(500));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(1000));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(2000));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(2500));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(2500));
}

TEST(Backoff, NeverExceedsTheCurrentStep) {
  FixedRng highest(~uint64_t{0});
  Backoff backoff(absl::Seconds(1), absl::Seconds(4), highest);
  for (const int seconds : {1, 2, 4, 4, 4}) {
    const absl::Duration wait = backoff.Next();
    EXPECT_LE(wait, absl::Seconds(seconds));
    EXPECT_GT(wait, absl::Seconds(seconds) * 0.99);
  }
}

TEST(Backoff, StartsAgainAfterAReset) {
  FixedRng lowest(0);
  Backoff backoff(absl::Seconds(1), absl::Minutes(1), lowest);
  backoff.Next();
  backoff.Next();
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(500));
}

TEST(Backoff, StaysAtItsMaximumForEver) {
  FixedRng lowest(0);
  Backoff backoff(absl::Seconds(1), absl::Hours(1), lowest);
  for (int i = 0; i < 200; ++i) EXPECT_LE(backoff.Next(), absl::Hours(1));
  EXPECT_EQ(backoff.Next(), absl::Minutes(30));
}

}  // namespace
}  // namespace trainyard
