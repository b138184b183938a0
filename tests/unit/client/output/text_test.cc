// Tests the texts of numbers, times and states.
#include "client/output/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainyard::output {
namespace {

TEST(Text, AgesHaveOneUnit) {
  EXPECT_EQ(AgeText(-absl::Seconds(3)), "0s");
  EXPECT_EQ(AgeText(absl::Seconds(119)), "119s");
  EXPECT_EQ(AgeText(absl::Minutes(5)), "5m");
  EXPECT_EQ(AgeText(absl::Hours(3)), "3h");
  EXPECT_EQ(AgeText(absl::Hours(49)), "2d");
}

TEST(Text, TimesLeftAreRounded) {
  EXPECT_EQ(TimeLeftText(absl::Hours(24 * 90) - absl::Seconds(1)), "90d");
  EXPECT_EQ(TimeLeftText(absl::Hours(24 * 90) - absl::Hours(13)), "89d");
  EXPECT_EQ(TimeLeftText(absl::Minutes(30) - absl::Seconds(2)), "30m");
}

TEST(Text, StatesAreTheirNamesWithoutPrefix) {
  EXPECT_EQ(StateText(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(StateText(v1::WORKER_STATE_UNREACHABLE), "UNREACHABLE");
  EXPECT_EQ(HealthText(v1::DEVICE_HEALTH_UNMANAGED_USE), "UNMANAGED_USE");
  EXPECT_EQ(StateText(static_cast<v1::JobState>(99)), "UNKNOWN_99");
}

TEST(Text, NumbersAreShort) {
  EXPECT_EQ(NumberText(0.43125), "0.4313");
  EXPECT_EQ(NumberText(std::nan("")), "nan");
  EXPECT_EQ(NumberText(-INFINITY), "-inf");
  EXPECT_EQ(PercentText(0.8617), "86.2%");
  EXPECT_EQ(RateText(5412.4), "5,412");
  EXPECT_EQ(RateText(12.34), "12.3");
}

TEST(Text, TimesAreLocalAndNameTheirZone) {
  google::protobuf::Timestamp time;
  EXPECT_EQ(TimeText(time), "");
  time.set_seconds(1'763'676'000);
  const absl::TimeZone zone = absl::LocalTimeZone();
  EXPECT_EQ(TimeText(time), absl::FormatTime("%Y-%m-%d %H:%M:%S ", ToTime(time), zone) +
                                std::string(zone.At(ToTime(time)).zone_abbr));
}

TEST(Text, LinesAreCutWithTheirColoursEnded) {
  EXPECT_EQ(Fitted("abcdef", 10), "abcdef");
  EXPECT_EQ(Fitted("abcdef", 5), "ab...");
  EXPECT_EQ(Fitted("\xff[31mabcdef\xff[0m", 3), "\xff[31mabc\xff[0m");
}

TEST(Text, NamesAreShortenedForPeople) {
  EXPECT_EQ(ShortName("jobs/12"), "12");
  EXPECT_EQ(ShortName("workers/lab-1"), "lab-1");
  EXPECT_EQ(ShortName("else"), "else");
}

}  // namespace
}  // namespace trainyard::output
