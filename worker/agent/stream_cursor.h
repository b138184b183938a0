// A cursor knows how far one growing file is on the server. The server's offset is the truth: a
// stream begins by asking where the server stands, so that nothing is lost or doubled over restarts
// of either side, and nothing has to be remembered here.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace trainyard::agent {

class StreamCursor {
 public:
  enum class Next {
    kMore,    // go on at offset()
    kAtEnd,   // nothing more can be sent now; never again where the cursor is closed
    kFailed,  // pause, then go on
  };

  // The server has said where it stands. Until then an empty chunk at offset 0 asks it.
  bool is_known() const { return offset_.has_value(); }
  // Where the next chunk begins.
  int64_t offset() const { return offset_.value_or(0); }
  // The server wants no more of it.
  bool is_closed() const { return is_closed_; }

  // The server has acknowledged everything before `next_offset`.
  Next Acknowledged(int64_t next_offset);
  // The server did not take the chunk.
  Next Failed(const absl::Status& status);

 private:
  std::optional<int64_t> offset_;
  bool is_closed_ = false;
};

}  // namespace trainyard::agent
