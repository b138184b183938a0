// Tests durations as people write and read them.
#include "common/base/duration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

using ::testing::HasSubstr;

TEST(ParseDuration, AcceptsNumbersWithAUnit) {
  EXPECT_EQ(*ParseDuration("90s"), absl::Seconds(90));
  EXPECT_EQ(*ParseDuration("1.5 h"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("2 days"), absl::Hours(48));
  EXPECT_EQ(*ParseDuration(" 30 min "), absl::Minutes(30));
  EXPECT_EQ(*ParseDuration("150ms"), absl::Milliseconds(150));
  EXPECT_EQ(*ParseDuration("0s"), absl::ZeroDuration());
  EXPECT_EQ(*ParseDuration("0.5ms"), absl::Microseconds(500));
  EXPECT_EQ(*ParseDuration("1w"), absl::Hours(168));
}

TEST(ParseDuration, RefusesWhatHasNoUnit) {
  const auto status = ParseDuration("90").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'90' needs a unit"));
}

TEST(ParseDuration, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"", " ", "h", "fast", "-5s", "+5s", "1.2.3s", ".s", "inf s", "nan s", "0x10s", "1e3s"}) {
    EXPECT_EQ(ParseDuration(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseDuration, RefusesUnitsThatItDoesNotKnow) {
  for (const char* text : {"5 fortnights", "5 S", "5 Min", "5 s s", "5 sh"}) {
    const auto status = ParseDuration(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("use ms, s, min, h or d"));
  }
}

TEST(ParseDuration, RefusesMoreThanAHundredYears) {
  EXPECT_TRUE(ParseDuration("36500 days").ok());
  EXPECT_FALSE(ParseDuration("36501 days").ok());
  EXPECT_FALSE(ParseDuration("99999999999999999999999999999 days").ok());
  EXPECT_FALSE(ParseDuration(std::string(400, '9') + "s").ok());
}

TEST(DurationText, ShowsTwoUnitsAtMost) {
  EXPECT_EQ(DurationText(absl::Milliseconds(150)), "150ms");
  EXPECT_EQ(DurationText(absl::ZeroDuration()), "0ms");
  EXPECT_EQ(DurationText(absl::Milliseconds(12'340)), "12.3s");
  EXPECT_EQ(DurationText(absl::Seconds(200)), "3m 20s");
  EXPECT_EQ(DurationText(absl::Minutes(64)), "1h 04m");
  EXPECT_EQ(DurationText(absl::Hours(50)), "2d 02h");
  EXPECT_EQ(DurationText(absl::InfiniteDuration()), "unlimited");
  EXPECT_EQ(DurationText(-absl::Seconds(200)), "-3m 20s");
}

TEST(DurationText, OfWholeUnitsParsesBack) {
  for (const absl::Duration duration : {absl::Milliseconds(7), absl::Seconds(12)}) {
    EXPECT_EQ(*ParseDuration(DurationText(duration)), duration);
  }
}

}  // namespace
}  // namespace trainyard
