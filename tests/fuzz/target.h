// Defines fuzz targets: functions that take any bytes, feed them to a part of the product, and
// check what that part promises. docs/reliability.md says how they are run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::fuzz {

// The memory that an input may take is 16 times its size, and this for buffers and tables of a
// fixed size.
inline constexpr int64_t kFixedBytes = int64_t{1} << 20;

// Protobuf makes room for a text before it looks whether the message has so many bytes, unless it
// would be more than this. The room is given back as soon as it has looked.
inline constexpr int64_t kMessageBytes = kFixedBytes + 50'000'000;

struct Target {
  std::string name;
  // Ends the process if the product breaks a promise.
  void (*run)(absl::string_view input) = nullptr;
  // Replaces kFixedBytes where something needs more; each target that sets it says why.
  int64_t fixed_bytes = kFixedBytes;
  // True if an input starts a server or writes files, so that a run takes some milliseconds.
  bool is_slow = false;
};

// Returns the targets of this program. A libFuzzer program has one, and the test has all.
const std::vector<Target>& Targets();

// Adds a target before main begins.
class Registration {
 public:
  explicit Registration(Target target);
};

// Runs the target once, and ends the process if the input took more memory than it may, or more
// than a second of processor time. Only what it takes again in a second run counts, because some
// tables are built once in the life of a process.
enum class Timing { kChecked, kIgnored };
void RunWithinLimits(const Target& target, absl::string_view input, Timing timing);

}  // namespace trainyard::fuzz
