// Limits how much of what a rank reports is kept. Each part cuts what it takes over from the part
// before, since a rank may be a user's own program, and a worker may be an older one.
#pragma once

#include <cstddef>

namespace trainyard {

inline constexpr size_t kFailureReasonBytesMax = 64;
inline constexpr size_t kFailureMessageBytesMax = 2048;
inline constexpr size_t kMetricNameBytesMax = 200;

// STREAM_FULL: the reason with which the server refuses more of a stream of which it has as much as
// it keeps.
inline constexpr char kStreamFull[] = "STREAM_FULL";

}  // namespace trainyard
