// Sends entries of the log to systemd's journal by its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL), so that journalctl finds them by their fields.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace trainyard {

using JournalFields = std::initializer_list<std::pair<absl::string_view, std::string>>;

// Returns the datagram of an entry with a priority of syslog(3), such as LOG_WARNING. A field `job`
// is TRAINYARD_JOB there. Bytes of a name that are no letter and no digit become "_".
std::string JournalEntry(int priority, absl::string_view program, absl::string_view message,
                         const JournalFields& fields);

// The journal. It is thread-safe.
class Journal {
 public:
  // Returns the journal whose sockets are in `folder` if `fd` leads there, as the stderr of a unit
  // does.
  static std::optional<Journal> Behind(int fd, const std::string& folder = "/run/systemd/journal");

  // Sends an entry without waiting. Returns false if the journal has not taken it.
  bool Send(const std::string& entry) const;

 private:
  Journal(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_;  // stays open until the process ends, as stderr does
  std::string path_;
};

}  // namespace trainyard
