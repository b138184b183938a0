// Writes the log of a process to stderr, one line of text or of JSON for each entry. It is
// thread-safe.
//   Log(LogLevel::kInfo, "job started", {{"job", "jobs/12"}, {"attempt", "1"}});
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace trainyard {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Sets the log up. Call it once, before the first Log; without it the log is text at kInfo.
void InitLog(absl::string_view program, LogLevel min_level, LogFormat format);

void Log(LogLevel level, absl::string_view message,
         std::initializer_list<std::pair<absl::string_view, std::string>> fields = {});

inline void LogInfo(absl::string_view message,
                    std::initializer_list<std::pair<absl::string_view, std::string>> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(
    absl::string_view message,
    std::initializer_list<std::pair<absl::string_view, std::string>> fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(absl::string_view message,
                     std::initializer_list<std::pair<absl::string_view, std::string>> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

}  // namespace trainyard
