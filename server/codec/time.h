// Converts times and durations of the records, which are microseconds, to messages and back.
#pragma once

#include <cstdint>

#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace trainyard::codec {

google::protobuf::Timestamp ToTimestamp(int64_t microseconds);
// Returns 0 for a time that a timestamp cannot hold.
int64_t FromTimestamp(const google::protobuf::Timestamp& time);
google::protobuf::Duration ToDuration(int64_t microseconds);
// A duration of more than 10,000 years, which duration.proto does not allow, counts as that many.
int64_t FromDuration(const google::protobuf::Duration& duration);

}  // namespace trainyard::codec
