// Implements the rules of a stream: acknowledgement, gap, refusal.
#include "worker/agent/stream_cursor.h"

#include "worker/agent/upload_target.h"

namespace trainyard::agent {

StreamCursor::Next StreamCursor::Acknowledged(int64_t next_offset) {
  const bool has_moved = !is_known() || next_offset != offset();
  offset_ = next_offset;
  // If a server acknowledges without accepting anything, it must not be asked in a loop.
  return has_moved ? Next::kMore : Next::kFailed;
}

StreamCursor::Next StreamCursor::Failed(const absl::Status& status) {
  const int64_t expected = ExpectedOffset(status);
  if (expected >= 0 && (!is_known() || expected != offset())) {
    offset_ = expected;
    return Next::kMore;
  }
  if (!IsRefusal(status)) return Next::kFailed;
  is_closed_ = true;
  return Next::kAtEnd;
}

}  // namespace trainyard::agent
