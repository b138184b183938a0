// Following files that grow by whole lines: logs and metrics.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainyard::run_dir {

// Bytes [offset, next_offset) of a file.
struct LineChunk {
  std::string text;  // whole lines with their newlines, unless `cut`
  int64_t next_offset = 0;
  // The text does not end in a newline: a line longer than the limit, or, where it was asked for,
  // the rest of a file that nobody writes any more.
  bool cut = false;
};

enum class TailEnd {
  kGrowing,   // the writer may be in the middle of a line: leave what has no newline
  kFinished,  // the writer has ended: take the rest too
};

// The whole lines of the first `max_bytes` bytes from `offset`; empty where there are none, where
// the offset is at or past the end, and where the file does not exist yet. A line of more than
// `max_bytes` comes in pieces.
absl::StatusOr<LineChunk> ReadWholeLines(const std::string& path, int64_t offset, int64_t max_bytes,
                                         TailEnd end = TailEnd::kGrowing);

}  // namespace trainyard::run_dir
