// Reads growing files. While a file grows, the text after its last newline is a line that is still
// being written, and is left for the next read.
#include "worker/run_dir/tail.h"

#include <utility>

#include "absl/status/status.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::run_dir {

absl::StatusOr<LineChunk> ReadWholeLines(const std::string& path, int64_t offset, int64_t max_bytes,
                                         TailEnd end) {
  LineChunk chunk;
  chunk.next_offset = offset;
  auto text = ReadRegularFileRange(path, offset, max_bytes);
  if (absl::IsNotFound(text.status())) return chunk;
  TY_RETURN_IF_ERROR(text.status());
  if (text->empty()) return chunk;
  const size_t newline = text->rfind('\n');
  const bool full = static_cast<int64_t>(text->size()) == max_bytes;
  if (newline != std::string::npos && (full || end == TailEnd::kGrowing)) {
    text->resize(newline + 1);
  } else if (!full && end == TailEnd::kGrowing) {
    return chunk;
  }
  chunk.cut = text->back() != '\n';
  chunk.next_offset = offset + static_cast<int64_t>(text->size());
  chunk.text = *std::move(text);
  return chunk;
}

}  // namespace trainyard::run_dir
