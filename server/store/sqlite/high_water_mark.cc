// The file is one line of fixed length, so that each mark overwrites the one before it wholly:
//   "revision 00000000000000000135 next_job 00000000000000000017 next_event 00000000000000000412"
// followed by the hash of that text.
#include "server/store/sqlite/high_water_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::store {
namespace {

constexpr int64_t kFileBytesMax = 4096;

std::string TextOf(const Watermark& mark) {
  const std::string text = absl::StrFormat("revision %020d next_job %020d next_event %020d",
                                           mark.revision, mark.next_job, mark.next_event);
  return absl::StrCat(text, " ", ContentHash(text), "\n");
}

std::optional<Watermark> Parse(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  Watermark mark;
  if (words.size() != 7 || !absl::SimpleAtoi(words[1], &mark.revision) ||
      !absl::SimpleAtoi(words[3], &mark.next_job) ||
      !absl::SimpleAtoi(words[5], &mark.next_event)) {
    return std::nullopt;
  }
  if (TextOf(mark) != line) return std::nullopt;
  return mark;
}

}  // namespace

absl::StatusOr<HighWaterMark> HighWaterMark::Open(std::string path) {
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDWR | O_CREAT, 0600));
  return HighWaterMark(std::move(path), std::move(fd));
}

absl::StatusOr<std::optional<Watermark>> HighWaterMark::Read() const {
  TY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_, kFileBytesMax));
  const std::optional<Watermark> mark = Parse(text);
  if (!mark.has_value() && !text.empty()) {
    LogWarning(
        "a file is damaged; until the next commit, nothing tells whether the database has "
        "lost commits",
        {{"file", path_}});
  }
  return mark;
}

void HighWaterMark::Write(const Watermark& mark) {
  const std::string text = TextOf(mark);
  if (pwrite(fd_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) return;
  if (std::exchange(has_warned_, true)) return;
  LogWarning("cannot note how far the database was committed",
             {{"error", ErrnoStatus(errno, "cannot write", path_).ToString()}});
}

}  // namespace trainyard::store
