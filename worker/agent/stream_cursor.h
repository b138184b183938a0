// Keeps track of how far one growing file is on the server. The server's offset is the truth: a
// stream begins by asking for it, so that nothing is lost or doubled when either side restarts, and
// nothing has to be remembered here.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace trainyard::agent {

class StreamCursor {
 public:
  enum class Next {
    kMore,    // continue at offset()
    kAtEnd,   // nothing more can be sent now, or ever if the cursor is closed
    kFailed,  // pause, then continue
  };

  // Returns true if the server has told its offset. Until then an empty chunk at offset 0 asks for
  // it.
  bool is_known() const { return offset_.has_value(); }
  // Returns the offset at which the next chunk begins.
  int64_t offset() const { return offset_.value_or(0); }
  // Returns true if the server wants no more of the stream.
  bool is_closed() const { return is_closed_; }

  // Notes that the server has acknowledged everything before `next_offset`.
  Next Acknowledged(int64_t next_offset);
  // Notes that the server did not accept the chunk.
  Next Failed(const absl::Status& status);

 private:
  std::optional<int64_t> offset_;
  bool is_closed_ = false;
};

}  // namespace trainyard::agent
