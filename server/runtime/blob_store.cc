// Stores files of checkpoints and archives by the hash of their content.
#include "server/runtime/blob_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::runtime {
namespace {

std::string Shown(const UploadId& upload, const core::CheckpointFile& file) {
  return absl::StrCat(CheckpointName(upload.attempt.job, upload.step), " file ", file.name);
}

// Returns 0 if there is no file.
absl::StatusOr<int64_t> SizeOrZero(const std::string& path) {
  auto size = FileSize(path);
  if (absl::IsNotFound(size.status())) return 0;
  return size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(std::string dir) {
  TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(dir, "blobs"), 0700));
  TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(dir, "uploads"), 0700));
  TY_RETURN_IF_ERROR(SyncDirectory(dir));
  return std::unique_ptr<BlobStore>(new BlobStore(std::move(dir)));
}

std::string BlobStore::BlobPath(absl::string_view digits) const {
  return absl::StrCat(dir_, "/blobs/", digits.substr(0, 2), "/", digits);
}

std::string BlobStore::UploadPath(const UploadId& upload, const core::CheckpointFile& file) const {
  // Name, size and hash as a number: another content under the same name begins a new upload.
  const std::string identity =
      ContentHash(absl::StrCat(file.name, "\n", file.size, "\n", file.hash));
  return absl::StrCat(dir_, "/uploads/", upload.attempt.job.value, "-", upload.attempt.number, "-",
                      upload.step, "-", identity.substr(identity.size() - 16));
}

Mutex& BlobStore::MutexOf(const std::string& path) {
  return mutexes_[absl::HashOf(path) % mutexes_.size()];
}

absl::StatusOr<int64_t> BlobStore::Append(const UploadId& upload, const core::CheckpointFile& file,
                                          int64_t offset, absl::string_view data) {
  TY_ASSIGN_OR_RETURN(const std::string digits, HashDigits(file.hash));
  if (file.size < 0 || file.size > kFileBytesMax || offset < 0 ||
      offset > file.size - static_cast<int64_t>(data.size())) {
    return absl::InvalidArgumentError(absl::StrCat(Shown(upload, file), ": ", data.size(),
                                                   " bytes at ", offset,
                                                   " do not lie within its size of ", file.size));
  }
  const auto blob_size = FileSize(BlobPath(digits));
  if (blob_size.ok() && *blob_size == file.size) return file.size;

  const std::string path = UploadPath(upload, file);
  const MutexLock lock(&MutexOf(path));
  TY_ASSIGN_OR_RETURN(const int64_t old_size, SizeOrZero(path));
  if (data.empty()) return old_size;
  if (offset > old_size) return error::OffsetMismatch(Shown(upload, file), offset, old_size);
  const auto skip = std::min<size_t>(static_cast<size_t>(old_size - offset), data.size());
  const absl::string_view rest = data.substr(skip);
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  TY_RETURN_IF_ERROR(WriteFully(fd.get(), rest, path));
  if (fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  return old_size + static_cast<int64_t>(rest.size());
}

absl::Status BlobStore::SealFile(const UploadId& upload, const core::CheckpointFile& file) {
  TY_ASSIGN_OR_RETURN(const std::string digits, HashDigits(file.hash));
  const std::string blob = BlobPath(digits);
  const auto blob_size = FileSize(blob);
  if (blob_size.ok() && *blob_size == file.size) return absl::OkStatus();

  const std::string path = UploadPath(upload, file);
  const MutexLock lock(&MutexOf(path));
  // Creates files that were never sent because they are empty.
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT, 0600));
  TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(path));
  if (size < file.size) return error::OffsetMismatch(Shown(upload, file), file.size, size);
  TY_ASSIGN_OR_RETURN(const std::string hash, FileHash(path));
  if (size != file.size || hash != file.hash) {
    unlink(path.c_str());
    return error::CorruptFile(
        Shown(upload, file), absl::StrCat(size, " bytes with hash ", hash, "; expected ", file.size,
                                          " bytes with ", file.hash));
  }
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  const std::string folder = absl::StrCat(dir_, "/blobs/", digits.substr(0, 2));
  TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  TY_RETURN_IF_ERROR(SyncDirectory(JoinPath(dir_, "blobs")));
  if (rename(path.c_str(), blob.c_str()) != 0) return ErrnoStatus(errno, "cannot rename to", blob);
  return SyncDirectory(folder);
}

absl::StatusOr<std::shared_ptr<const void>> BlobStore::Seal(
    const UploadId& upload, const std::vector<core::CheckpointFile>& files) {
  std::vector<std::string> hashes;
  hashes.reserve(files.size());
  for (const core::CheckpointFile& file : files) hashes.push_back(file.hash);
  {
    const MutexLock lock(&pins_mutex_);
    for (const std::string& hash : hashes) ++pins_[hash];
  }
  // The pins are made first, and whatever fails below takes them back.
  std::shared_ptr<const void> pin(this, [this, hashes](const void*) {
    const MutexLock lock(&pins_mutex_);
    for (const std::string& hash : hashes) {
      if (--pins_[hash] == 0) pins_.erase(hash);
    }
  });
  for (const core::CheckpointFile& file : files) TY_RETURN_IF_ERROR(SealFile(upload, file));
  return pin;
}

absl::StatusOr<std::string> BlobStore::Read(absl::string_view hash, int64_t offset,
                                            int64_t max_bytes) const {
  TY_ASSIGN_OR_RETURN(const std::string digits, HashDigits(hash));
  return ReadFileRange(BlobPath(digits), offset, max_bytes);
}

absl::StatusOr<std::vector<std::string>> BlobStore::AllHashes() const {
  std::vector<std::string> hashes;
  const std::string root = JoinPath(dir_, "blobs");
  TY_ASSIGN_OR_RETURN(const auto folders, ListDirectory(root));
  for (const std::string& folder : folders) {
    TY_ASSIGN_OR_RETURN(const auto names, ListDirectory(JoinPath(root, folder)));
    for (const std::string& name : names) hashes.push_back(absl::StrCat("xxh3-128:", name));
  }
  return hashes;
}

int64_t BlobStore::TakeUnreferenced(const std::vector<std::string>& hashes,
                                    const IsReferenced& is_referenced,
                                    const std::function<bool(const std::string& digits)>& take) {
  int64_t taken = 0;
  for (const std::string& hash : hashes) {
    const auto digits = HashDigits(hash);
    if (!digits.ok()) continue;
    const MutexLock lock(&pins_mutex_);
    if (pins_.contains(hash) || is_referenced(hash)) continue;
    if (take(std::string(*digits))) ++taken;
  }
  return taken;
}

int64_t BlobStore::RemoveUnreferenced(const std::vector<std::string>& hashes,
                                      const IsReferenced& is_referenced) {
  return TakeUnreferenced(hashes, is_referenced, [this](const std::string& digits) {
    return unlink(BlobPath(digits).c_str()) == 0;
  });
}

int64_t BlobStore::SetUnreferencedAside(const std::string& folder,
                                        const IsReferenced& is_referenced) {
  const auto hashes = AllHashes();
  if (!hashes.ok()) {
    LogWarning("cannot list blobs", {{"error", std::string(hashes.status().message())}});
    return 0;
  }
  return TakeUnreferenced(*hashes, is_referenced, [&](const std::string& digits) {
    const std::string parent = JoinPath(folder, digits.substr(0, 2));
    absl::Status status = MakeDirectories(parent, 0700);
    if (status.ok() && rename(BlobPath(digits).c_str(), JoinPath(parent, digits).c_str()) != 0) {
      status = ErrnoStatus(errno, "cannot move to", JoinPath(parent, digits));
    }
    if (!status.ok()) {
      LogWarning("a blob stays where it is", {{"error", std::string(status.message())}});
    }
    return status.ok();
  });
}

void BlobStore::RemoveUploads(const std::function<bool(AttemptId)>& is_live) {
  const std::string folder = JoinPath(dir_, "uploads");
  const auto names = ListDirectory(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
    AttemptId attempt;
    const bool is_ours = parts.size() == 4 && absl::SimpleAtoi(parts[0], &attempt.job.value) &&
                         absl::SimpleAtoi(parts[1], &attempt.number);
    if (is_ours && !is_live(attempt)) unlink(JoinPath(folder, name).c_str());
  }
}

}  // namespace trainyard::runtime
