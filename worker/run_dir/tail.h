// Follows files that grow by whole lines: logs and metrics.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainyard::run_dir {

// Bytes [offset, next_offset) of a file.
struct LineChunk {
  std::string text;  // whole lines with their newlines, unless `cut`
  int64_t next_offset = 0;
  // True if the text does not end in a newline: it is a line longer than the limit, or, if that was
  // requested, the rest of a file that is not written any more.
  bool cut = false;
};

enum class TailEnd {
  kGrowing,   // the writer may be in the middle of a line, so text without a newline is left
  kFinished,  // the writer has ended, so the rest is taken too
};

// Returns the whole lines of the first `max_bytes` bytes from `offset`. The result is empty if
// there are none, if the offset is at or past the end, and if the file does not exist yet. A line
// of more than `max_bytes` comes in pieces.
absl::StatusOr<LineChunk> ReadWholeLines(const std::string& path, int64_t offset, int64_t max_bytes,
                                         TailEnd end = TailEnd::kGrowing);

}  // namespace trainyard::run_dir
