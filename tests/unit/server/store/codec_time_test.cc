// Tests that every time and duration that comes out can be written as JSON, whatever went in.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "server/codec/time.h"

namespace trainyard::codec {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

bool IsJson(const google::protobuf::Message& message) {
  std::string text;
  return google::protobuf::util::MessageToJsonString(message, &text).ok();
}

TEST(CodecTime, GoesThereAndBack) {
  for (const int64_t us :
       {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{1'700'000'000'123'456}, int64_t{-1'500'000}}) {
    EXPECT_EQ(FromTimestamp(ToTimestamp(us)), us);
    EXPECT_EQ(FromDuration(ToDuration(us)), us);
    EXPECT_TRUE(IsJson(ToTimestamp(us)));
    EXPECT_TRUE(IsJson(ToDuration(us)));
  }
}

TEST(CodecTime, WhatNoCalendarHasBecomesTheNearestTime) {
  for (const int64_t us : {kFar, -kFar, int64_t{253'402'300'800'000'000}}) {
    EXPECT_TRUE(IsJson(ToTimestamp(us))) << us;
    EXPECT_TRUE(IsJson(ToDuration(us))) << us;
  }
}

TEST(CodecTime, MessagesThatBreakTheRulesAreNoTimes) {
  google::protobuf::Timestamp time;
  time.set_seconds(253'402'300'799);
  time.set_nanos(2'000'000'000);
  EXPECT_EQ(FromTimestamp(time), 0);
  time.set_nanos(-1);
  EXPECT_EQ(FromTimestamp(time), 0);
  time.set_nanos(999'999'999);
  EXPECT_GT(FromTimestamp(time), 0);
  time.set_seconds(kFar);
  EXPECT_EQ(FromTimestamp(time), 0);
}

TEST(CodecTime, DurationsBeyondAllMeasureAreBounded) {
  google::protobuf::Duration duration;
  duration.set_seconds(kFar);
  duration.set_nanos(std::numeric_limits<int32_t>::max());
  EXPECT_TRUE(IsJson(ToDuration(FromDuration(duration))));
  duration.set_seconds(-kFar);
  duration.set_nanos(std::numeric_limits<int32_t>::min());
  EXPECT_LT(FromDuration(duration), 0);
  EXPECT_TRUE(IsJson(ToDuration(FromDuration(duration))));
}

}  // namespace
}  // namespace trainyard::codec
