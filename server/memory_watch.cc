// Compares what is resident with what is in use.
#include "server/memory_watch.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/strings.h"

namespace trainyard {
namespace {

// A trim costs milliseconds, so it must be worth it.
constexpr int64_t kTrimStep = int64_t{32} << 20;

}  // namespace

Memory ReadMemory() {
  Memory memory;
  const struct mallinfo2 info = mallinfo2();
  memory.in_use = static_cast<int64_t>(info.uordblks + info.hblkhd);
  const auto text = ReadFile("/proc/self/statm");
  if (!text.ok()) return memory;
  const std::vector<std::string> fields = absl::StrSplit(*text, ' ');
  int64_t resident = 0;
  int64_t shared = 0;
  if (fields.size() < 3 || !absl::SimpleAtoi(fields[1], &resident) ||
      !absl::SimpleAtoi(fields[2], &shared)) {
    return memory;
  }
  memory.resident = (resident - shared) * sysconf(_SC_PAGESIZE);
  return memory;
}

void MemoryWatch::Look() {
  const Memory memory = Trim(ports_.read());
  if (closed_at_ > 0) {
    // Connections do not hold what remains, so closing them again would not help.
    if (memory.resident > closed_at_ / 4 * 3) {
      high_ = std::max(high_, 2 * memory.resident);
      LogWarning("the memory is not held by connections",
                 {{"resident", FormatBytes(memory.resident)}, {"next_bound", FormatBytes(high_)}});
    }
    closed_at_ = 0;
  }
  if (memory.resident <= high_) return;
  LogWarning("too much memory is in use: all connections are closed, and may come back",
             {{"resident", FormatBytes(memory.resident)}, {"bound", FormatBytes(high_)}});
  closed_at_ = memory.resident;
  ports_.close_connections();
}

Memory MemoryWatch::Trim(Memory memory) {
  const auto spare = [&memory] { return std::max<int64_t>(memory.resident - memory.in_use, 0); };
  if (spare() > left_ + kTrimStep) {
    ports_.trim();
    memory = ports_.read();
    left_ = spare();
  }
  left_ = std::min(left_, spare());
  return memory;
}

}  // namespace trainyard
