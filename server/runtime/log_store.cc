// Stores streams of ranks as plain files. An append is on disk when it is answered.
#include "server/runtime/log_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/report_limits.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::runtime {
namespace {

absl::string_view StreamName(RankStream stream) {
  switch (stream) {
    case RankStream::kLog:
      return "log";
    case RankStream::kTrace:
      return "trace";
    case RankStream::kEnvironment:
      return "environment";
  }
  return "log";
}

int64_t BytesMax(RankStream stream) {
  switch (stream) {
    case RankStream::kLog:
      return LogStore::kLogBytesMax;
    case RankStream::kTrace:
      return LogStore::kTraceBytesMax;
    case RankStream::kEnvironment:
      return LogStore::kEnvironmentBytesMax;
  }
  return LogStore::kLogBytesMax;
}

absl::Status StreamFull(const LogId& log) {
  return MakeError(absl::StatusCode::kFailedPrecondition, kStreamFull,
                   absl::StrCat("the ", StreamName(log.stream), " of rank ", log.rank, " of ",
                                AttemptName(log.attempt), " has reached the limit of ",
                                FormatBytes(BytesMax(log.stream)), "; the rest is not kept"));
}

// Ends a stream that is full. Timelines and environments have no room for a text.
std::string EndMark(RankStream stream) {
  if (stream != RankStream::kLog) return "";
  return absl::StrCat("\n==== this log has reached the limit of ", FormatBytes(BytesMax(stream)),
                      "; the rest is not kept ====\n");
}

}  // namespace

std::string LogStore::FolderOf(JobId job) const {
  return absl::StrCat(dir_, "/", job.value);
}

std::string LogStore::Path(const LogId& log) const {
  return absl::StrCat(FolderOf(log.attempt.job), "/", log.attempt.number, "/", log.rank, ".",
                      StreamName(log.stream));
}

Mutex& LogStore::MutexOf(const LogId& log) {
  return mutexes_[absl::HashOf(log.attempt, log.rank, log.stream) % mutexes_.size()];
}

absl::StatusOr<int64_t> LogStore::Append(const LogId& log, int64_t offset, absl::string_view data) {
  const MutexLock lock(&MutexOf(log));
  const std::string path = Path(log);
  TY_ASSIGN_OR_RETURN(const int64_t old_size, Size(log));
  if (offset < 0 || offset > old_size) {
    return error::OffsetMismatch(absl::StrCat(StreamName(log.stream), " of rank ", log.rank, " of ",
                                              AttemptName(log.attempt)),
                                 offset, old_size);
  }
  const auto skip = std::min<size_t>(static_cast<size_t>(old_size - offset), data.size());
  const int64_t room = BytesMax(log.stream) - old_size;
  if (room <= 0) return StreamFull(log);
  std::string rest(data.substr(skip));
  const bool is_full = static_cast<int64_t>(rest.size()) >= room;
  if (is_full) {
    rest.resize(static_cast<size_t>(room));
    rest += EndMark(log.stream);
  }
  if (rest.empty() && old_size == 0) return 0;
  if (old_size == 0) {
    const std::string folder = FolderOf(log.attempt.job);
    TY_RETURN_IF_ERROR(MakeDirectories(absl::StrCat(folder, "/", log.attempt.number), 0700));
  }
  // With O_APPEND, the bytes of a failed write are the start of what is sent again, so they are
  // skipped then.
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  TY_RETURN_IF_ERROR(WriteFully(fd.get(), rest, path));
  // The file is synced even if nothing is new, because a process that died may have written the
  // bytes.
  if (fdatasync(fd.get()) != 0) {
    absl::Status failed = ErrnoStatus(errno, "cannot sync", path);
    // The kernel counts these pages as written now, and a further sync would say so. The worker has
    // all bytes from `offset` on and sends them again, so they are dropped.
    if (ftruncate(fd.get(), offset) != 0) return ErrnoStatus(errno, "cannot truncate", path);
    return failed;
  }
  if (old_size == 0) {
    const absl::Status synced = SyncFolders(log);
    if (!synced.ok()) {
      // The next attempt to append is the first one again.
      (void)unlink(path.c_str());
      return synced;
    }
  }
  if (is_full) return StreamFull(log);
  return old_size + static_cast<int64_t>(rest.size());
}

absl::Status LogStore::SyncFolders(const LogId& log) const {
  const std::string folder = FolderOf(log.attempt.job);
  TY_RETURN_IF_ERROR(SyncDirectory(absl::StrCat(folder, "/", log.attempt.number)));
  TY_RETURN_IF_ERROR(SyncDirectory(folder));
  return SyncDirectory(dir_);
}

absl::StatusOr<std::string> LogStore::Read(const LogId& log, int64_t offset,
                                           int64_t max_bytes) const {
  auto content = ReadFileRange(Path(log), offset, max_bytes);
  if (absl::IsNotFound(content.status())) return std::string();
  return content;
}

absl::StatusOr<int64_t> LogStore::Size(const LogId& log) const {
  auto size = FileSize(Path(log));
  if (absl::IsNotFound(size.status())) return 0;
  return size;
}

absl::StatusOr<int64_t> LogStore::SizeOf(JobId job) const {
  int64_t bytes = 0;
  const auto attempts = ListDirectory(FolderOf(job));
  if (absl::IsNotFound(attempts.status())) return 0;
  TY_RETURN_IF_ERROR(attempts.status());
  for (const std::string& attempt : *attempts) {
    const std::string folder = JoinPath(FolderOf(job), attempt);
    TY_ASSIGN_OR_RETURN(const auto files, ListDirectory(folder));
    for (const std::string& file : files) {
      TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(JoinPath(folder, file)));
      bytes += size;
    }
  }
  return bytes;
}

absl::Status LogStore::Remove(JobId job) {
  return RemoveTree(FolderOf(job));
}

absl::Status LogStore::SetAside(AttemptId attempt, const std::string& folder) {
  const std::string from = absl::StrCat(FolderOf(attempt.job), "/", attempt.number);
  const std::string parent = absl::StrCat(folder, "/", attempt.job.value);
  TY_RETURN_IF_ERROR(MakeDirectories(parent, 0700));
  const std::string to = absl::StrCat(parent, "/", attempt.number);
  if (rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot move '", from, "' to"), to);
  }
  TY_RETURN_IF_ERROR(SyncDirectory(parent));
  // The folder of the job stays if it holds other attempts.
  (void)rmdir(FolderOf(attempt.job).c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JobId>> LogStore::ListJobs() const {
  std::vector<JobId> jobs;
  const auto names = ListDirectory(dir_);
  if (absl::IsNotFound(names.status())) return jobs;
  TY_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    JobId job;
    if (absl::SimpleAtoi(name, &job.value)) jobs.push_back(job);
  }
  return jobs;
}

absl::StatusOr<std::vector<AttemptId>> LogStore::ListAttempts(JobId job) const {
  std::vector<AttemptId> attempts;
  TY_ASSIGN_OR_RETURN(const auto names, ListDirectory(FolderOf(job)));
  for (const std::string& name : names) {
    AttemptId attempt{job, 0};
    if (absl::SimpleAtoi(name, &attempt.number)) attempts.push_back(attempt);
  }
  return attempts;
}

}  // namespace trainyard::runtime
