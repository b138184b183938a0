// Fetches several files at the same time, since most of them are small and wait for the store.
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/in_parallel.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"
#include "server/backup/as_owner.h"
#include "server/backup/bucket.h"
#include "server/backup/folder_lock.h"
#include "server/backup/items.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {
namespace {

// A backup removes the folders *.partial of its directory, but not those with this suffix.
constexpr char kFetching[] = ".fetching";

// Returns a name for the folder of a snapshot: "20261128T100000Z".
std::string FolderNameOf(const Manifest& manifest) {
  const auto time = TimeOf(manifest);
  return time.has_value() ? absl::FormatTime("%Y%m%dT%H%M%SZ", *time, absl::UTCTimeZone())
                          : "snapshot";
}

// Writes the pieces of a file one after the other.
absl::Status PullPieces(s3::ManifestStore& bucket, const FileEntry& file, const std::string& path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd target,
                      OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, static_cast<mode_t>(file.mode)));
  tls::Sha256Hasher whole;
  int64_t offset = 0;
  for (const std::string& digits : file.pieces) {
    const int64_t size = PieceSize(file, offset);
    TY_ASSIGN_OR_RETURN(const std::string piece, bucket.GetContent({digits, size}));
    TY_RETURN_IF_ERROR(WriteFully(target.get(), piece, path));
    whole.Update(piece);
    offset += size;
  }
  if (whole.Text() == file.sha256) return absl::OkStatus();
  return error::CorruptFile(path, "its pieces in the bucket are not those of one file");
}

absl::Status PullFiles(s3::ManifestStore& bucket, const Manifest& manifest,
                       const std::string& folder) {
  std::vector<std::pair<std::string, FileEntry>> files(manifest.files.begin(),
                                                       manifest.files.end());
  return InParallel(files.size(), kItemsAtOnce, [&](size_t i) -> absl::Status {
    const auto& [name, file] = files[i];
    TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(file.sha256));
    const std::string path = JoinPath(folder, name);
    TY_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string(), 0700));
    const absl::Status got = file.pieces.empty()
                                 ? bucket.GetBlob({digits, file.size}, path, file.mode)
                                 : PullPieces(bucket, file, path);
    if (got.ok()) return CheckSize(folder, name, file);
    if (!absl::IsNotFound(got)) return got;
    return error::CorruptFile(name, absl::StrCat("the bucket has lost it: ", got.message()));
  });
}

// Makes the folder of a version. The caller has locked `directory`.
absl::StatusOr<std::string> PullVersion(s3::ManifestStore& bucket, const s3::Version& version,
                                        const std::string& directory) {
  TY_ASSIGN_OR_RETURN(Manifest manifest,
                      ParseManifest(version.content, "the newest version in the bucket"));
  const std::string folder = JoinPath(directory, FolderNameOf(manifest));
  if (FileExists(folder)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", folder, "' is there already; restore it, or choose another folder"));
  }
  const std::string partial = absl::StrCat(folder, kFetching);
  TY_RETURN_IF_ERROR(RemoveTree(partial));
  TY_RETURN_IF_ERROR(MakeDirectories(partial, 0700));
  absl::Status status = PullFiles(bucket, manifest, partial);
  // The folder has the files as they are, and is a snapshot as any other.
  for (auto& [name, file] : manifest.files) file.pieces.clear();
  manifest.is_continuous = false;
  if (status.ok()) status = WriteManifest(partial, manifest);
  if (status.ok()) status = GiveToOwnerOf(directory, partial);
  if (status.ok()) status = SyncFileSystem(partial);
  if (status.ok() && std::rename(partial.c_str(), folder.c_str()) != 0) {
    status = ErrnoStatus(errno, "cannot rename", partial);
  }
  if (!status.ok()) {
    RemoveTree(partial).IgnoreError();  // the next pull removes it otherwise
    return status;
  }
  TY_RETURN_IF_ERROR(SyncDirectory(directory));
  return folder;
}

}  // namespace

absl::StatusOr<std::string> Pull(s3::ManifestStore& bucket, const std::string& directory) {
  TY_ASSIGN_OR_RETURN(s3::Version version, bucket.Latest());
  if (version.number == 0) {
    return MakeError(absl::StatusCode::kNotFound, kNoBackup,
                     "this folder of the bucket has no backup; check its name");
  }
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, LockFolder(directory, directory));
  while (true) {
    auto folder = PullVersion(bucket, version, directory);
    if (folder.ok() || !absl::IsDataLoss(folder.status())) return folder;
    // A backup that goes on may have removed this version meanwhile.
    TY_ASSIGN_OR_RETURN(s3::Version now, bucket.Latest());
    if (now.number <= version.number) return folder;
    version = std::move(now);
  }
}

}  // namespace trainyard::backup
