// Names of files are made of digests alone, never of what a user wrote.
#include "server/runtime/code_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/tls/digest.h"
#include "common/tls/file_digest.h"

namespace trainyard::runtime {
namespace {

constexpr absl::string_view kDigestPrefix = "sha256:";
// Uploads of this many users fit into memory many times over.
constexpr size_t kUserDigits = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<CodeStore>> CodeStore::Open(const std::string& dir, Clock& clock) {
  const std::string own = JoinPath(dir, "code");
  TY_RETURN_IF_ERROR(RemoveTree(JoinPath(own, "uploads")));
  TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(own, "uploads"), 0700));
  TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(own, "archives"), 0700));
  TY_RETURN_IF_ERROR(SyncDirectory(own));
  TY_RETURN_IF_ERROR(SyncDirectory(dir));
  std::unique_ptr<CodeStore> store(new CodeStore(own, clock));
  TY_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status CodeStore::Load() {
  const std::string folder = JoinPath(dir_, "archives");
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  const MutexLock lock(&mutex_);
  for (const std::string& digits : names) {
    const std::string digest = absl::StrCat(kDigestPrefix, digits);
    const auto size = FileSize(JoinPath(folder, digits));
    if (!tls::Sha256Digits(digest).ok() || !size.ok()) continue;
    sizes_[digest] = *size;
    held_[{digest, ""}] = clock_.Uptime() + kKeep;
  }
  return absl::OkStatus();
}

std::string CodeStore::ArchivePath(absl::string_view digits) const {
  return absl::StrCat(dir_, "/archives/", digits);
}

absl::StatusOr<int64_t> CodeStore::Append(const std::string& user, const std::string& digest,
                                          int64_t size, int64_t offset, absl::string_view data) {
  TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(digest));
  if (size > kBytesMax) {
    return error::CodeTooLarge(absl::StrCat("its archive has ", FormatBytes(size),
                                            "; expected at most ", FormatBytes(kBytesMax)));
  }
  if (size < 0 || offset < 0 || offset > size - static_cast<int64_t>(data.size())) {
    return absl::InvalidArgumentError(absl::StrCat(data.size(), " bytes at ", offset, " of ",
                                                   digest, " do not lie within its size of ",
                                                   size));
  }
  const MutexLock lock(&upload_mutex_);
  // Whoever holds an archive need not send it again.
  if (IsHeld(user, digest) && Hold(user, digest)) return size;
  const std::string prefix = tls::Sha256Text(user).substr(kDigestPrefix.size(), kUserDigits);
  const std::string path = absl::StrCat(dir_, "/uploads/", prefix, "-", digits);
  const auto known = FileSize(path);
  const int64_t old_size = known.value_or(0);
  if (offset > old_size) return error::OffsetMismatch(digest, offset, old_size);
  if (!known.ok()) TY_RETURN_IF_ERROR(CheckRoom(prefix, size));
  const auto skip = std::min<size_t>(static_cast<size_t>(old_size - offset), data.size());
  data.remove_prefix(skip);
  {
    TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
    TY_RETURN_IF_ERROR(WriteFully(fd.get(), data, path));
    const int64_t end = old_size + static_cast<int64_t>(data.size());
    if (end < size) return end;
    if (fsync(fd.get()) != 0) {
      absl::Status failed = ErrnoStatus(errno, "cannot sync", path);
      // A further sync would say that these pages are written. All of it is sent again.
      (void)unlink(path.c_str());
      return failed;
    }
  }
  TY_RETURN_IF_ERROR(Complete(path, user, digest, size));
  return size;
}

absl::Status CodeStore::CheckRoom(const std::string& prefix, int64_t size) const {
  const std::string folder = JoinPath(dir_, "uploads");
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) == 0 &&
      size / static_cast<int64_t>(info.f_frsize) > static_cast<int64_t>(info.f_bavail)) {
    return Annotate(error::DiskFull(folder), absl::StrCat("the code has ", FormatBytes(size)));
  }
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  const auto begun = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return absl::StartsWith(name, prefix);
  });
  if (begun < kUploadsMax) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_UPLOADS",
                   absl::StrCat(begun, " uploads of code have begun and are not complete; at most ",
                                kUploadsMax, " are allowed, try again later"));
}

absl::Status CodeStore::Complete(const std::string& path, const std::string& user,
                                 const std::string& digest, int64_t size) {
  TY_ASSIGN_OR_RETURN(const std::string found, tls::Sha256OfFile(path));
  if (found != digest) {
    (void)unlink(path.c_str());
    return error::CorruptFile("the upload",
                              absl::StrCat("it has the digest ", found, "; expected ", digest));
  }
  // A sweep looks at the file under the same lock, so it cannot remove what has just come.
  const MutexLock lock(&mutex_);
  const std::string archive = ArchivePath(digest.substr(kDigestPrefix.size()));
  if (rename(path.c_str(), archive.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", archive);
  }
  TY_RETURN_IF_ERROR(SyncDirectory(JoinPath(dir_, "archives")));
  sizes_[digest] = size;
  held_[{digest, user}] = clock_.Uptime() + kKeep;
  return absl::OkStatus();
}

int64_t CodeStore::SizeOf(const std::string& digest) const {
  const MutexLock lock(&mutex_);
  const auto found = sizes_.find(digest);
  return found == sizes_.end() ? -1 : found->second;
}

bool CodeStore::IsHeld(const std::string& user, const std::string& digest) const {
  const MutexLock lock(&mutex_);
  const auto held = held_.find({digest, user});
  return held != held_.end() && held->second > clock_.Uptime();
}

int64_t CodeStore::HeldBytes(const std::string& user, const std::set<std::string>& counted) const {
  const MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& [key, until] : held_) {
    const auto& [digest, holder] = key;
    if (holder != user || until <= clock_.Uptime() || counted.contains(digest)) continue;
    if (const auto size = sizes_.find(digest); size != sizes_.end()) bytes += size->second;
  }
  return bytes;
}

bool CodeStore::Hold(const std::string& user, const std::string& digest) {
  const MutexLock lock(&mutex_);
  if (!sizes_.contains(digest)) return false;
  held_[{digest, user}] = clock_.Uptime() + kKeep;
  return true;
}

absl::StatusOr<std::string> CodeStore::Read(const std::string& digest, int64_t offset,
                                            int64_t max_bytes) const {
  TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(digest));
  auto read = ReadFileRange(ArchivePath(digits), offset, max_bytes);
  if (absl::IsNotFound(read.status())) {
    return error::CodeNotFound(absl::StrCat("the server has lost the code ", digest));
  }
  return read;
}

int64_t CodeStore::Sweep(const std::function<bool(const std::string& digest)>& is_referenced) {
  RemoveOldUploads();
  int64_t removed = 0;
  const MutexLock lock(&mutex_);
  std::erase_if(held_, [now = clock_.Uptime()](const auto& held) { return held.second <= now; });
  for (auto it = sizes_.begin(); it != sizes_.end();) {
    const std::string& digest = it->first;
    const auto held = held_.lower_bound({digest, ""});
    const bool is_held = held != held_.end() && held->first.first == digest;
    const std::string path = ArchivePath(digest.substr(kDigestPrefix.size()));
    if (is_held || is_referenced(digest) || (unlink(path.c_str()) != 0 && errno != ENOENT)) {
      ++it;
      continue;
    }
    it = sizes_.erase(it);
    ++removed;
  }
  return removed;
}

void CodeStore::RemoveOldUploads() {
  const std::string folder = JoinPath(dir_, "uploads");
  const auto names = ListDirectory(folder);
  if (!names.ok()) return;
  const MutexLock lock(&upload_mutex_);
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) continue;
    if (absl::TimeFromTimespec(info.st_mtim) < clock_.Now() - kKeep) (void)unlink(path.c_str());
  }
}

}  // namespace trainyard::runtime
