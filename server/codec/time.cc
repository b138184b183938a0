// Converts between microseconds and the time messages of protobuf.
#include "server/codec/time.h"

#include <algorithm>

namespace trainyard::codec {
namespace {

// These are the years 0001 to 9999, which timestamp.proto allows.
constexpr int64_t kTimestampMin = -62'135'596'800;
constexpr int64_t kTimestampMax = 253'402'300'799;
// These are the 10,000 years that duration.proto allows.
constexpr int64_t kDurationMax = 315'576'000'000;
constexpr int32_t kNanosMax = 999'999'999;

}  // namespace

google::protobuf::Timestamp ToTimestamp(int64_t microseconds) {
  google::protobuf::Timestamp time;
  int64_t seconds = microseconds / 1'000'000;
  int64_t rest = microseconds % 1'000'000;
  if (rest < 0) {  // nanos count forward
    --seconds;
    rest += 1'000'000;
  }
  time.set_seconds(std::clamp(seconds, kTimestampMin, kTimestampMax));
  time.set_nanos(static_cast<int32_t>(rest * 1000));
  return time;
}

int64_t FromTimestamp(const google::protobuf::Timestamp& time) {
  if (time.seconds() < kTimestampMin || time.seconds() > kTimestampMax) return 0;
  if (time.nanos() < 0 || time.nanos() > kNanosMax) return 0;
  return time.seconds() * 1'000'000 + time.nanos() / 1000;
}

google::protobuf::Duration ToDuration(int64_t microseconds) {
  google::protobuf::Duration duration;
  duration.set_seconds(std::clamp(microseconds / 1'000'000, -kDurationMax, kDurationMax));
  duration.set_nanos(static_cast<int32_t>(microseconds % 1'000'000 * 1000));
  return duration;
}

int64_t FromDuration(const google::protobuf::Duration& duration) {
  const int64_t seconds = std::clamp(duration.seconds(), -kDurationMax, kDurationMax);
  return seconds * 1'000'000 + std::clamp(duration.nanos(), -kNanosMax, kNanosMax) / 1000;
}

}  // namespace trainyard::codec
