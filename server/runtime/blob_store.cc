// Stores files of checkpoints and archives by the hash of their content.
#include "server/runtime/blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::runtime {
namespace {

constexpr int64_t kSyncEvery = int64_t{32} << 20;

std::string Shown(const UploadId& upload, const core::CheckpointFile& file) {
  const std::string whose = upload.step == core::kOutputsStep
                                ? absl::StrCat("the outputs of ", JobName(upload.attempt.job))
                                : CheckpointName(upload.attempt.job, upload.step);
  return absl::StrCat(whose, " file ", file.name);
}

// Tells two files with the same path apart.
struct FileIdentity {
  ino_t number = 0;
  int64_t size = 0;
  int64_t change_ns = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// Returns the identity of no file if there is none.
FileIdentity IdentityOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size,
          int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
}

// Returns what is wrong with the bytes at `path`, or an empty text.
absl::StatusOr<std::string> DamageOf(const std::string& path, const core::CheckpointFile& file) {
  const auto damaged = [&file](const auto&... what) { return absl::StrCat(file.name, what...); };
  const auto size = FileSize(path);
  if (absl::IsNotFound(size.status())) return damaged(" is missing");
  TY_RETURN_IF_ERROR(size.status());
  if (*size != file.size) return damaged(" has ", *size, " bytes; expected ", file.size);
  const auto hash = FileHash(path);
  if (absl::IsNotFound(hash.status())) return damaged(" is missing");
  // A disk that does not give the bytes back has damaged them.
  if (absl::IsUnavailable(hash.status())) return damaged(": ", hash.status().message());
  TY_RETURN_IF_ERROR(hash.status());
  if (*hash != file.hash) return damaged(" has the hash ", *hash, "; expected ", file.hash);
  return std::string();
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
  TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(dir, "damaged"), 0700));
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
  const bool is_output = upload.step == core::kOutputsStep;
  return absl::StrCat(dir_, "/uploads/", upload.attempt.job.value, "-", upload.attempt.number, "-",
                      is_output ? "outputs" : absl::StrCat(upload.step), "-",
                      identity.substr(identity.size() - 16));
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
  TY_ASSIGN_OR_RETURN(const bool has_blob, HasBlob(upload, file, digits, offset == 0));
  if (has_blob) return file.size;

  const std::string path = UploadPath(upload, file);
  const MutexLock lock(&MutexOf(path));
  TY_ASSIGN_OR_RETURN(const int64_t old_size, SizeOrZero(path));
  if (data.empty()) return old_size;
  if (offset > old_size) return error::OffsetMismatch(Shown(upload, file), offset, old_size);
  if (old_size == 0) TY_RETURN_IF_ERROR(CheckRoom(upload, file));
  const auto skip = std::min<size_t>(static_cast<size_t>(old_size - offset), data.size());
  const absl::string_view rest = data.substr(skip);
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  TY_RETURN_IF_ERROR(WriteFully(fd.get(), rest, path));
  const int64_t size = old_size + static_cast<int64_t>(rest.size());
  // Seal hashes and syncs the whole file, so nothing relies on these bytes before. They are written
  // while the next ones come, and a sync now and then bounds what waits for the disk.
  if (old_size / kSyncEvery == size / kSyncEvery) {
    (void)sync_file_range(fd.get(), old_size, size - old_size, SYNC_FILE_RANGE_WRITE);
    return size;
  }
  if (fdatasync(fd.get()) != 0) {
    absl::Status failed = ErrnoStatus(errno, "cannot sync", path);
    // The kernel counts these pages as written now, and a further sync would say so. So all of the
    // file is sent again.
    (void)unlink(path.c_str());
    return failed;
  }
  return size;
}

// Refuses an upload that cannot succeed before it takes space.
absl::Status BlobStore::CheckRoom(const UploadId& upload, const core::CheckpointFile& file) const {
  const std::string folder = JoinPath(dir_, "uploads");
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) == 0 &&
      file.size / static_cast<int64_t>(info.f_frsize) > static_cast<int64_t>(info.f_bavail)) {
    return Annotate(error::DiskFull(folder),
                    absl::StrCat(Shown(upload, file), " has ", FormatBytes(file.size)));
  }
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  const std::string prefix =
      absl::StrCat(upload.attempt.job.value, "-", upload.attempt.number, "-");
  const auto begun = std::count_if(names.begin(), names.end(), [&prefix](const std::string& name) {
    return absl::StartsWith(name, prefix);
  });
  if (begun < kUploadsMax) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "TOO_MANY_UPLOADS",
      absl::StrCat(Shown(upload, file), ": ", begun,
                   " uploads of the attempt have begun and are not committed; at most ",
                   kUploadsMax, " are allowed"));
}

absl::StatusOr<bool> BlobStore::HasBlob(const UploadId& upload, const core::CheckpointFile& file,
                                        const std::string& digits, bool begins) {
  const std::string blob = BlobPath(digits);
  const FileIdentity seen = IdentityOf(blob);
  // Only its hash condemns a blob. If the size differs, the caller may have named a wrong one, so
  // the blob stays until Seal has better bytes for it.
  if (seen == FileIdentity{} || seen.size != file.size) return false;
  // A blob that appears in the middle of an upload was sealed by another one, so it is whole.
  if (!begins) return true;
  const std::string path = UploadPath(upload, file);
  {
    const MutexLock lock(&relied_mutex_);
    if (relied_.contains(path)) return true;
  }
  TY_ASSIGN_OR_RETURN(const std::string damage, DamageOf(blob, file));
  if (damage.empty()) {
    const MutexLock lock(&relied_mutex_);
    relied_.insert(path);
    return true;
  }
  const MutexLock lock(&pins_mutex_);
  // While we hashed, another upload may have put a whole blob in its place.
  if (IdentityOf(blob) != seen) return IdentityOf(blob).size == file.size;
  TY_RETURN_IF_ERROR(SetDamagedAside(digits, damage));
  return false;
}

absl::Status BlobStore::SetDamagedAside(const std::string& digits, absl::string_view damage) {
  const std::string aside = JoinPath(JoinPath(dir_, "damaged"), digits);
  if (rename(BlobPath(digits).c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot move to", aside);
  }
  LogWarning("a damaged blob is set aside, and comes anew; the damaged one can be deleted",
             {{"path", aside}, {"damage", std::string(damage)}});
  return absl::OkStatus();
}

absl::StatusOr<std::string> BlobStore::FindDamage(
    const std::vector<core::CheckpointFile>& files) const {
  for (const core::CheckpointFile& file : files) {
    TY_ASSIGN_OR_RETURN(const std::string digits, HashDigits(file.hash));
    TY_ASSIGN_OR_RETURN(std::string damage, DamageOf(BlobPath(digits), file));
    if (!damage.empty()) return damage;
  }
  return std::string();
}

absl::Status BlobStore::SealFile(const UploadId& upload, const core::CheckpointFile& file) {
  TY_ASSIGN_OR_RETURN(const std::string digits, HashDigits(file.hash));
  const std::string blob = BlobPath(digits);
  const std::string path = UploadPath(upload, file);
  {
    const MutexLock lock(&relied_mutex_);
    relied_.erase(path);
  }
  const auto blob_size = FileSize(blob);
  if (blob_size.ok() && *blob_size == file.size) return absl::OkStatus();

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
  if (fsync(fd.get()) != 0) {
    absl::Status failed = ErrnoStatus(errno, "cannot sync", path);
    (void)unlink(path.c_str());  // as in Append
    return failed;
  }
  return MakeBlob(path, digits);
}

absl::Status BlobStore::MakeBlob(const std::string& path, const std::string& digits) {
  const std::string blob = BlobPath(digits);
  const std::string folder = absl::StrCat(dir_, "/blobs/", digits.substr(0, 2));
  TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  if (absl::Status synced = SyncDirectory(JoinPath(dir_, "blobs")); !synced.ok()) {
    (void)rmdir(folder.c_str());  // fails if it has blobs, and then its name was synced before
    return synced;
  }
  const MutexLock name_lock(&pins_mutex_);
  if (rename(path.c_str(), blob.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", blob);
  }
  absl::Status synced = SyncDirectory(folder);
  // A blob whose name may be lost must not count as there.
  if (!synced.ok()) (void)unlink(blob.c_str());
  return synced;
}

std::shared_ptr<const void> BlobStore::Pin(const std::vector<core::CheckpointFile>& files) {
  std::vector<std::string> hashes;
  hashes.reserve(files.size());
  for (const core::CheckpointFile& file : files) hashes.push_back(file.hash);
  {
    const MutexLock lock(&pins_mutex_);
    for (const std::string& hash : hashes) ++pins_[hash];
  }
  return {this, [this, hashes](const void*) {
            const MutexLock lock(&pins_mutex_);
            for (const std::string& hash : hashes) {
              if (--pins_[hash] == 0) pins_.erase(hash);
            }
          }};
}

absl::StatusOr<std::string> BlobStore::PathOf(absl::string_view hash) const {
  TY_ASSIGN_OR_RETURN(const std::string digits, HashDigits(hash));
  return BlobPath(digits);
}

absl::StatusOr<std::shared_ptr<const void>> BlobStore::Seal(
    const UploadId& upload, const std::vector<core::CheckpointFile>& files) {
  // The pins are made first, and whatever fails below takes them back.
  std::shared_ptr<const void> pin = Pin(files);
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

std::map<JobId, int64_t> BlobStore::UploadedBytes() const {
  std::map<JobId, int64_t> bytes;
  const std::string folder = JoinPath(dir_, "uploads");
  const auto names = ListDirectory(folder);
  if (!names.ok()) return bytes;
  for (const std::string& name : *names) {
    JobId job;
    if (!absl::SimpleAtoi(absl::string_view(name).substr(0, name.find('-')), &job.value)) continue;
    bytes[job] += SizeOrZero(JoinPath(folder, name)).value_or(0);
  }
  return bytes;
}

void BlobStore::RemoveUploads(const std::function<bool(AttemptId)>& is_live) {
  const std::string folder = JoinPath(dir_, "uploads");
  const auto is_dead = [&is_live](absl::string_view name) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
    AttemptId attempt;
    const bool is_ours = parts.size() == 4 && absl::SimpleAtoi(parts[0], &attempt.job.value) &&
                         absl::SimpleAtoi(parts[1], &attempt.number);
    return is_ours && !is_live(attempt);
  };
  {
    const MutexLock lock(&relied_mutex_);
    std::erase_if(relied_, [&](const std::string& path) {
      return is_dead(absl::string_view(path).substr(folder.size() + 1));
    });
  }
  const auto names = ListDirectory(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (is_dead(name)) unlink(JoinPath(folder, name).c_str());
  }
}

}  // namespace trainyard::runtime
