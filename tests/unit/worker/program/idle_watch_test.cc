// Tests when a program counts as idle.
#include "worker/program/idle_watch.h"

#include <gtest/gtest.h>

namespace trainyard::program {
namespace {

constexpr absl::Duration kLimit = absl::Minutes(10);

// Looks every ten seconds until `end`, with so much processor time in each second.
bool LookUntil(IdleWatch& watch, Signs& signs, absl::Duration& now, absl::Duration end,
               double load) {
  bool is_due = false;
  for (; now < end; now += absl::Seconds(10)) {
    signs.processor_time += absl::Seconds(10) * load;
    is_due = watch.Look(signs, now);
  }
  return is_due;
}

TEST(IdleWatch, AProgramThatDoesNothingIsIdle) {
  IdleWatch watch(kLimit);
  Signs signs;
  absl::Duration now = absl::Hours(5);
  EXPECT_FALSE(LookUntil(watch, signs, now, absl::Hours(5) + kLimit, 0.003));
  EXPECT_TRUE(watch.Look(signs, absl::Hours(5) + kLimit));
  EXPECT_EQ(watch.idle(), kLimit);
}

TEST(IdleWatch, AProgramThatComputesIsNotIdle) {
  IdleWatch watch(kLimit);
  Signs signs;
  absl::Duration now;
  EXPECT_FALSE(LookUntil(watch, signs, now, absl::Hours(3), 0.02));
}

TEST(IdleWatch, EachSignOfLifeBeginsAnew) {
  for (const int sign : {0, 1, 2}) {
    IdleWatch watch(kLimit);
    Signs signs;
    absl::Duration now;
    EXPECT_FALSE(LookUntil(watch, signs, now, kLimit - absl::Seconds(20), 0));
    if (sign == 0) signs.written_bytes += 1;
    if (sign == 1) signs.visit_us += 1;
    if (sign == 2) signs.processor_time -= absl::Seconds(1);  // a process has ended
    EXPECT_FALSE(LookUntil(watch, signs, now, 2 * kLimit - absl::Seconds(20), 0)) << sign;
    EXPECT_TRUE(LookUntil(watch, signs, now, 2 * kLimit + absl::Seconds(10), 0)) << sign;
  }
}

TEST(IdleWatch, ShortLimitsAreLookedAtMoreOften) {
  EXPECT_EQ(IdleWatch(absl::Hours(1)).interval(), absl::Seconds(10));
  EXPECT_EQ(IdleWatch(absl::Seconds(2)).interval(), absl::Milliseconds(200));
}

}  // namespace
}  // namespace trainyard::program
