// Remembers beside the database how far it was committed. SQLite drops a damaged frame of its
// write-ahead log and all frames after it without a word, so a database may come back older than it
// was, as may one that somebody replaced by an older copy.
//
// The mark is written after each commit, in place and without a sync, which costs a microsecond. It
// never runs ahead of the database, and after the death of the server it is exact. After a loss of
// power it may lie behind, and then some damage goes unnoticed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard::store {

// Says how far a database has come. All of the numbers only grow.
struct Watermark {
  int64_t revision = 0;
  int64_t next_job = 1;
  int64_t next_event = 1;

  friend bool operator==(const Watermark&, const Watermark&) = default;
};

// The file of a mark. It is not thread-safe.
class HighWaterMark {
 public:
  // Opens the file, and makes it if it is not there.
  static absl::StatusOr<HighWaterMark> Open(std::string path);

  // Returns what was written last, or nothing if that was nothing, or is damaged itself.
  absl::StatusOr<std::optional<Watermark>> Read() const;
  // Overwrites the mark. A mark that cannot be written stays behind, which harms nobody at once, so
  // that is only a warning.
  void Write(const Watermark& mark);

 private:
  HighWaterMark(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  UniqueFd fd_;
  bool has_warned_ = false;
};

}  // namespace trainyard::store
