// Converts times and durations of the records, which are microseconds, to messages and back.
#pragma once

#include <cstdint>

#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace trainyard::codec {

// Every result can be written as JSON: a time outside of the years 0001 to 9999, and a duration of
// more than 10,000 years, become the nearest ones that protobuf allows.
google::protobuf::Timestamp ToTimestamp(int64_t microseconds);
google::protobuf::Duration ToDuration(int64_t microseconds);
// Returns 0 for a message that is no time by the rules of timestamp.proto.
int64_t FromTimestamp(const google::protobuf::Timestamp& time);
// A duration that duration.proto does not allow counts as the nearest one that it does.
int64_t FromDuration(const google::protobuf::Duration& duration);

}  // namespace trainyard::codec
