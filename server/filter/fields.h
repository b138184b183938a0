// Says which fields jobs have, and what values they may be compared with.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::filter {

// The kinds of fields, which decide what values they are compared with.
enum class Kind {
  kText,      // compared exactly, or searched with ~ in any case
  kWord,      // a text that is compared in any case: RUNNING is running
  kTexts,     // several texts, any of which may be meant
  kNumber,    // 0.9, 1e-3, 90%
  kDuration,  // 2h; in seconds
  kBytes,     // 4 GiB
  kTime,      // 2026-11-27, 2026-11-27T10:00; in seconds since 1970
  kAny,       // a number if both sides are numbers, else a text
};

struct FieldType {
  Kind kind = Kind::kText;
  // The only values that there are, in lower case; empty for any.
  std::vector<std::string> words = {};
};

// Returns the type of a field, or an error whose message says what was expected in its place.
using TypeOf = std::function<absl::StatusOr<FieldType>(const std::string& field)>;

// The value of a field of a job. Numbers, durations, sizes and times are doubles. A job that has no
// such field has monostate.
using Value = std::variant<std::monostate, std::string, std::vector<std::string>, double>;
using ValueOf = std::function<Value(const std::string& field)>;

// Longer expressions, and deeper ones, are refused.
inline constexpr size_t kExpressionBytesMax = 1024;
inline constexpr int kDepthMax = 32;

}  // namespace trainyard::filter
