// Remembers beside metrics.db which appends are in its write-ahead log only. SQLite drops a damaged
// frame of that log and all frames after it without a word. The journal then tells which streams
// have lost points, which their workers may still have.
//
// A line is added after each commit without a sync, which costs some microseconds. When all of the
// log is in the database file itself, the journal is emptied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "common/base/ids.h"

namespace trainyard::store {

// One append, or the deletion of all that was appended to an attempt or a job before.
struct JournalEntry {
  enum class Kind { kAppend, kDelete };
  Kind kind = Kind::kAppend;
  AttemptId attempt;  // number 0 stands for all attempts of a deleted job
  int32_t rank = 0;
  int64_t end_offset = 0;
  int64_t points = 0;
  int64_t last_cursor = 0;

  friend bool operator==(const JournalEntry&, const JournalEntry&) = default;
};

// The file. It is not thread-safe.
class AppendJournal {
 public:
  // The size from which on the journal should be emptied, and the one at which it is emptied in any
  // case. Somebody who reads the database for hours keeps its log from being written back.
  static constexpr int64_t kFullBytes = int64_t{256} << 10;
  static constexpr int64_t kBytesMax = int64_t{16} << 20;

  // Opens the file, and makes it if it is not there.
  static absl::StatusOr<AppendJournal> Open(std::string path);

  // Returns the entries in order. A damaged line is left out, with a warning.
  absl::StatusOr<std::vector<JournalEntry>> Read() const;
  // Adds an entry. If that fails, damage may go unnoticed, so it is only a warning.
  void Add(const JournalEntry& entry);
  void Clear();
  int64_t size() const { return size_; }

 private:
  AppendJournal(std::string path, UniqueFd fd, int64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  void Warn(const absl::Status& status);

  std::string path_;
  UniqueFd fd_;
  int64_t size_ = 0;
  bool has_warned_ = false;
};

}  // namespace trainyard::store
