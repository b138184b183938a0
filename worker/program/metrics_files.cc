// Keeps the file of the program open, so that lines which it had before it was replaced are read
// too.
#include "worker/program/metrics_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::program {
namespace {

absl::StatusOr<std::string> ReadAt(int fd, int64_t offset, int64_t max_bytes,
                                   const std::string& path) {
  std::string text(static_cast<size_t>(max_bytes), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = pread(fd, text.data() + have, text.size() - have,
                              static_cast<off_t>(offset + static_cast<int64_t>(have)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", path);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

}  // namespace

absl::Status MetricsTail::Reopen() {
  auto opened = OpenRegularFile(path_, O_RDONLY);
  if (absl::IsNotFound(opened.status())) return absl::OkStatus();
  if (!opened.ok()) {
    if (!std::exchange(is_refused_, true)) {
      troubles_.push_back(absl::StrCat("metrics.jsonl is not read: ", opened.status().message()));
    }
    return opened.status();
  }
  struct stat now {};
  if (fstat(opened->get(), &now) != 0) return ErrnoStatus(errno, "cannot stat", path_);
  struct stat known {};
  const bool is_same = file_.valid() && fstat(file_.get(), &known) == 0 &&
                       known.st_dev == now.st_dev && known.st_ino == now.st_ino;
  if (is_same) return absl::OkStatus();
  if (file_.valid()) {
    troubles_.push_back("metrics.jsonl was replaced, and is read from its beginning");
  }
  file_ = *std::move(opened);
  offset_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MetricsTail::Read(run_dir::TailEnd end) {
  if (!file_.valid()) TY_RETURN_IF_ERROR(Reopen());
  if (!file_.valid()) return std::string();
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path_);
  if (info.st_size < offset_) {
    troubles_.push_back(absl::StrCat("metrics.jsonl was cut off at byte ", info.st_size,
                                     ", and is read from its beginning"));
    offset_ = 0;
  }
  TY_ASSIGN_OR_RETURN(std::string text, ReadAt(file_.get(), offset_, kChunkBytes, path_));
  if (text.empty()) {
    // The rest of a file that was replaced has been read.
    const int64_t before = offset_;
    const int old = file_.get();
    TY_RETURN_IF_ERROR(Reopen());
    if (file_.get() == old || offset_ == before) return text;
    return Read(end);
  }
  const bool is_full = static_cast<int64_t>(text.size()) == kChunkBytes;
  const size_t newline = text.rfind('\n');
  if (newline != std::string::npos && (is_full || end == run_dir::TailEnd::kGrowing)) {
    text.resize(newline + 1);
  } else if (!is_full && end == run_dir::TailEnd::kGrowing) {
    // A torn line of a file that has another name by now gets no end any more.
    struct stat named {};
    const bool is_replaced = stat(path_.c_str(), &named) == 0 && named.st_ino != info.st_ino;
    if (!is_replaced) return std::string();
  }
  offset_ += static_cast<int64_t>(text.size());
  return text;
}

std::vector<std::string> MetricsTail::TakeTroubles() {
  return std::exchange(troubles_, {});
}

absl::Status PointsFile::Open(const std::string& path) {
  path_ = path;
  TY_ASSIGN_OR_RETURN(file_, OpenRegularFile(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  return absl::OkStatus();
}

bool PointsFile::Flush() {
  if (pending_.empty()) return true;
  struct stat before {};
  if (fstat(file_.get(), &before) != 0) return false;
  const absl::Status written = WriteFully(file_.get(), pending_, path_);
  if (written.ok()) {
    pending_.clear();
    if (std::exchange(is_failing_, false))
      troubles_.push_back("metrics can be written again; none is lost");
    return true;
  }
  // Whoever reads the file must not take half a line for a whole one. The same bytes come again.
  (void)!ftruncate(file_.get(), before.st_size);
  if (!std::exchange(is_failing_, true)) {
    troubles_.push_back(
        absl::StrCat("metrics wait, because they cannot be written: ", written.message()));
  }
  return false;
}

std::vector<std::string> PointsFile::TakeTroubles() {
  return std::exchange(troubles_, {});
}

}  // namespace trainyard::program
