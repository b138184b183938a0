// A line of the file has the fields of an entry and the hash of the text before it:
//   "append 17 2 0 12345 500 9120 xxh3-128:..."
#include "server/store/sqlite/append_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::store {
namespace {

constexpr absl::string_view kAppendWord = "append";
constexpr absl::string_view kDeleteWord = "delete";

std::string TextOf(const JournalEntry& entry) {
  const bool is_append = entry.kind == JournalEntry::Kind::kAppend;
  const std::string text =
      absl::StrCat(is_append ? kAppendWord : kDeleteWord, " ", entry.attempt.job.value, " ",
                   entry.attempt.number, " ", entry.rank, " ", entry.end_offset, " ", entry.points,
                   " ", entry.last_cursor);
  return absl::StrCat(text, " ", ContentHash(text));
}

std::optional<JournalEntry> Parse(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  JournalEntry entry;
  if (words.size() != 8 || !absl::SimpleAtoi(words[1], &entry.attempt.job.value) ||
      !absl::SimpleAtoi(words[2], &entry.attempt.number) ||
      !absl::SimpleAtoi(words[3], &entry.rank) || !absl::SimpleAtoi(words[4], &entry.end_offset) ||
      !absl::SimpleAtoi(words[5], &entry.points) ||
      !absl::SimpleAtoi(words[6], &entry.last_cursor)) {
    return std::nullopt;
  }
  if (words[0] == kDeleteWord) entry.kind = JournalEntry::Kind::kDelete;
  if (TextOf(entry) != line) return std::nullopt;
  return entry;
}

}  // namespace

absl::StatusOr<AppendJournal> AppendJournal::Open(std::string path) {
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(path));
  return AppendJournal(std::move(path), std::move(fd), size);
}

absl::StatusOr<std::vector<JournalEntry>> AppendJournal::Read() const {
  TY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_, 2 * kBytesMax));
  std::vector<JournalEntry> entries;
  int damaged = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (const auto entry = Parse(line); entry.has_value()) {
      entries.push_back(*entry);
    } else {
      ++damaged;
    }
  }
  if (damaged > 0) {
    LogWarning("lines of a file are damaged; points that only they know of may be lost unnoticed",
               {{"file", path_}, {"lines", absl::StrCat(damaged)}});
  }
  return entries;
}

void AppendJournal::Add(const JournalEntry& entry) {
  if (size_ >= kBytesMax) Clear();
  const std::string line = absl::StrCat(TextOf(entry), "\n");
  if (const absl::Status status = WriteFully(fd_.get(), line, path_); !status.ok()) Warn(status);
  size_ += static_cast<int64_t>(line.size());
}

void AppendJournal::Clear() {
  if (ftruncate(fd_.get(), 0) != 0) return Warn(ErrnoStatus(errno, "cannot empty", path_));
  size_ = 0;
}

void AppendJournal::Warn(const absl::Status& status) {
  if (std::exchange(has_warned_, true)) return;
  LogWarning("cannot note which metric points were committed", {{"error", status.ToString()}});
}

}  // namespace trainyard::store
