// Converts between microseconds and the time messages of protobuf.
#include "server/codec/time.h"

namespace trainyard::codec {

google::protobuf::Timestamp ToTimestamp(int64_t microseconds) {
  google::protobuf::Timestamp time;
  int64_t seconds = microseconds / 1'000'000;
  int64_t rest = microseconds % 1'000'000;
  if (rest < 0) {  // nanos count forward
    --seconds;
    rest += 1'000'000;
  }
  time.set_seconds(seconds);
  time.set_nanos(static_cast<int32_t>(rest * 1000));
  return time;
}

int64_t FromTimestamp(const google::protobuf::Timestamp& time) {
  // These are the years 0001 to 9999, which timestamp.proto allows.
  constexpr int64_t kMin = -62'135'596'800;
  constexpr int64_t kMax = 253'402'300'799;
  if (time.seconds() < kMin || time.seconds() > kMax) return 0;
  return time.seconds() * 1'000'000 + time.nanos() / 1000;
}

google::protobuf::Duration ToDuration(int64_t microseconds) {
  google::protobuf::Duration duration;
  duration.set_seconds(microseconds / 1'000'000);
  duration.set_nanos(static_cast<int32_t>(microseconds % 1'000'000 * 1000));
  return duration;
}

int64_t FromDuration(const google::protobuf::Duration& duration) {
  // These are the 10,000 years that duration.proto allows.
  constexpr int64_t kSecondsMax = 315'576'000'000;
  if (duration.seconds() > kSecondsMax) return kSecondsMax * 1'000'000;
  if (duration.seconds() < -kSecondsMax) return -kSecondsMax * 1'000'000;
  return duration.seconds() * 1'000'000 + duration.nanos() / 1000;
}

}  // namespace trainyard::codec
