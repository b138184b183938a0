// Writes the log, to stderr or to the journal behind it. This is the only file that includes
// spdlog. An entry is built as one string before it is passed on, so that the entries of several
// threads do not mix.
#include "common/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <syslog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/journal.h"
#include "common/base/strings.h"

namespace trainyard {
namespace {

std::atomic<LogFormat> log_format{LogFormat::kText};
// The journal, if text goes there. It is never deleted, like the log.
std::atomic<const Journal*> journal{nullptr};

int PriorityOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return LOG_DEBUG;
    case LogLevel::kInfo:
      return LOG_INFO;
    case LogLevel::kWarning:
      return LOG_WARNING;
    case LogLevel::kError:
      return LOG_ERR;
  }
  return LOG_ERR;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void InitLog(absl::string_view program, LogLevel min_level, LogFormat format) {
  auto logger = std::make_shared<spdlog::logger>(std::string(program),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(ToSpdlog(min_level));
  logger->flush_on(spdlog::level::info);
  logger->set_pattern(format == LogFormat::kJson
                          ? R"({"time":"%Y-%m-%dT%H:%M:%S.%f%z","program":"%n","level":"%l",%v})"
                          : "%Y-%m-%d %H:%M:%S.%e %n %l: %v");
  log_format = format;
  if (journal == nullptr) {
    if (auto found = Journal::Behind(STDERR_FILENO); found.has_value()) {
      journal = new Journal(*std::move(found));
    }
  }
  spdlog::set_default_logger(std::move(logger));
}

void Log(LogLevel level, absl::string_view message,
         std::initializer_list<std::pair<absl::string_view, std::string>> fields) {
  const auto logger = spdlog::default_logger();
  if (!logger->should_log(ToSpdlog(level))) return;
  const Journal* const sink = log_format == LogFormat::kText ? journal.load() : nullptr;
  if (sink != nullptr &&
      sink->Send(JournalEntry(PriorityOf(level), logger->name(), message, fields))) {
    return;
  }
  std::string line;
  if (log_format == LogFormat::kJson) {
    absl::StrAppend(&line, "\"message\":", JsonQuote(message));
    for (const auto& [key, value] : fields) {
      absl::StrAppend(&line, ",", JsonQuote(key), ":", JsonQuote(value));
    }
  } else {
    absl::StrAppend(&line, message);
    for (const auto& [key, value] : fields) absl::StrAppend(&line, " ", key, "=", value);
  }
  logger->log(ToSpdlog(level), "{}", line);
}

}  // namespace trainyard
