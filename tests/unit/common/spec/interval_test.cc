#include "common/spec/interval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/duration.h"

namespace trainyard::spec {
namespace {

TEST(Interval, ReadsEpochsStepsAndTimes) {
  EXPECT_EQ(ParseInterval("1 epoch")->epochs(), 1);
  EXPECT_EQ(ParseInterval("3epochs")->epochs(), 3);
  EXPECT_EQ(ParseInterval(" 500 steps ")->steps(), 500);
  EXPECT_EQ(ParseInterval("10 min")->time().seconds(), 600);
  EXPECT_EQ(ParseInterval("1.5s")->time().nanos(), 500'000'000);
  EXPECT_TRUE(ParseInterval(" auto ")->automatic());
}

TEST(Interval, RefusesWhatIsNoSpan) {
  for (const char* text : {"", "epoch", "0 epochs", "-1 steps", "1.5 epochs", "10", "5 parsecs",
                           "0 s", "99999999999999999999 steps", "automatic"}) {
    const auto interval = ParseInterval(text);
    ASSERT_FALSE(interval.ok()) << text;
    EXPECT_THAT(std::string(interval.status().message()), testing::HasSubstr(text));
    EXPECT_THAT(std::string(interval.status().message()), testing::HasSubstr("is not an interval"));
  }
}

TEST(Interval, TextReadsBackAsTheSame) {
  for (const char* text : {"1 epoch", "2 epochs", "1 step", "500 steps", "10 min", "90 s", "150 ms",
                           "2 h", "3 d", "auto"}) {
    EXPECT_EQ(IntervalText(*ParseInterval(text)), text);
  }
  EXPECT_EQ(IntervalText(v1::Interval()), "");
}

TEST(Interval, PlainDurationsReadBackAsTheSame) {
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Seconds(61), absl::Hours(25), absl::Microseconds(1500)}) {
    EXPECT_EQ(*ParseDuration(PlainDurationText(duration)), duration) << duration;
    EXPECT_EQ(FromProto(ToProto(duration)), duration);
  }
}

TEST(Interval, AnImpossibleDurationBecomesZero) {
  google::protobuf::Duration duration;
  duration.set_seconds(INT64_MAX);
  EXPECT_EQ(FromProto(duration), absl::ZeroDuration());
}

}  // namespace
}  // namespace trainyard::spec
