// Moves several files at the same time, since most of them are small and wait for the store.
#include "server/backup/bucket.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/in_parallel.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/s3/file_transfer.h"
#include "common/s3/sign.h"
#include "common/tls/digest.h"
#include "common/tls/file_digest.h"
#include "server/backup/as_owner.h"
#include "server/backup/folder_lock.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {
namespace {

// So many small files at once hide the way to the store, and take at most 256 MiB of memory. Large
// ones, each of which goes in parts at the same time, follow one after the other.
constexpr size_t kParallel = 8;
// What somebody else has removed from the bucket is found after this time, and sent again.
constexpr absl::Duration kListEvery = absl::Hours(1);
// A backup removes the folders *.partial of its directory, but not those with this suffix.
constexpr char kFetching[] = ".fetching";

// A file or a piece by its content; many files of a snapshot may have the same.
struct Item {
  std::string path;  // of one of the files
  s3::Blob blob;
  int64_t offset = 0;  // in the file
  bool is_piece = false;
};

// Returns the size of the piece that begins there.
int64_t PieceSize(const FileEntry& file, int64_t offset) {
  return std::min(kPieceBytes, file.size - offset);
}

absl::StatusOr<std::map<std::string, Item>> ItemsOf(const Manifest& manifest) {
  std::map<std::string, Item> items;
  for (const auto& [name, file] : manifest.files) {
    int64_t offset = 0;
    for (const std::string& digits : file.pieces) {
      const int64_t size = PieceSize(file, offset);
      items[digits] = {name, {digits, size}, offset, /*is_piece=*/true};
      offset += size;
    }
    if (!file.pieces.empty()) continue;
    TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(file.sha256));
    items[digits] = {name, {digits, file.size}};
  }
  return items;
}

// Returns true for a file that grows, or of which parts are overwritten.
bool IsChanging(const std::string& name, const FileEntry& file) {
  return file.size > kPieceBytes &&
         (absl::StartsWith(name, "logs/") || absl::EndsWith(name, ".db"));
}

// Hashes the pieces of a file. Returns DATA_LOSS (CORRUPT_FILE) if it is not the one of the entry.
absl::StatusOr<std::vector<std::string>> PiecesOf(const std::string& path, const FileEntry& file) {
  std::vector<std::string> pieces;
  tls::Sha256Hasher whole;
  for (int64_t offset = 0; offset < file.size; offset += kPieceBytes) {
    TY_ASSIGN_OR_RETURN(const std::string piece,
                        ReadFileRange(path, offset, PieceSize(file, offset)));
    pieces.push_back(s3::HexSha256(piece));
    whole.Update(piece);
  }
  const std::string hash = whole.Text();
  if (hash == file.sha256) return pieces;
  return error::CorruptFile(path, absl::StrCat("its hash is ", hash, "; expected ", file.sha256));
}

absl::Status CutIntoPieces(const std::string& snapshot, const Manifest& before,
                           Manifest& manifest) {
  for (auto& [name, file] : manifest.files) {
    if (!IsChanging(name, file)) continue;
    const auto known = before.files.find(name);
    if (known != before.files.end() && known->second.sha256 == file.sha256) {
      file.pieces = known->second.pieces;
    }
    if (!file.pieces.empty()) continue;
    TY_ASSIGN_OR_RETURN(file.pieces, PiecesOf(JoinPath(snapshot, name), file));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::set<std::string>> BlobsOf(const std::string& content) {
  TY_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(content, "a version in the bucket"));
  TY_ASSIGN_OR_RETURN(const auto items, ItemsOf(manifest));
  std::set<std::string> blobs;
  for (const auto& [digits, item] : items) blobs.insert(digits);
  return blobs;
}

// The files of a snapshot that are in the bucket already, by hex digits.
struct Stored {
  std::set<std::string> present;
  // The newest version does not name these, so another program that prunes the bucket may remove
  // them before the next version does.
  std::set<std::string> fading;
};

// The list says what is there, whatever the newest version names: a bucket may lose an object.
absl::StatusOr<Stored> StoredOf(s3::ManifestStore& bucket, const std::map<std::string, Item>& items,
                                const std::map<std::string, Item>& named, absl::Time now) {
  Stored stored;
  TY_RETURN_IF_ERROR(bucket.ForEachBlob(
      [&](const std::string& digits, const s3::ListedObject& object) -> absl::Status {
        const auto item = items.find(digits);
        if (item == items.end() || item->second.blob.size != object.size) return absl::OkStatus();
        const bool is_fading = !named.contains(digits) && object.modified < now - kSpare / 2;
        (is_fading ? stored.fading : stored.present).insert(digits);
        return absl::OkStatus();
      }));
  return stored;
}

// Returns a name for the folder of a snapshot: "20261128T100000Z".
std::string FolderNameOf(const Manifest& manifest) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_sec, manifest.time, &time, &error)) return "snapshot";
  return absl::FormatTime("%Y%m%dT%H%M%SZ", time, absl::UTCTimeZone());
}

// Two kinds of backups in one folder would remove each other's versions.
absl::Status CheckWriter(const Manifest& newest, const Manifest& manifest) {
  if (newest.is_continuous == manifest.is_continuous) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kFailedPrecondition, kOtherWriter,
      newest.is_continuous
          ? "a backup with --every keeps this folder of the bucket; choose another one"
          : "this folder of the bucket has backups that were made without --every, and "
            "would lose them; choose another one");
}

// Returns true if the newest version is that of the memory, and false if there is none of either.
absl::StatusOr<bool> IsOwn(const s3::Version& newest, const PushMemory& memory) {
  if (newest.number == 0 || (memory.committed.empty() && memory.tried.empty())) return false;
  const std::string digits = s3::HexSha256(newest.content);
  if (digits == memory.committed || digits == memory.tried) return true;
  return MakeError(absl::StatusCode::kFailedPrecondition, kOtherWriter,
                   absl::StrCat("somebody else has made the newest version, number ", newest.number,
                                ", in this folder of the bucket: a second backup, or a server that "
                                "was restored elsewhere"));
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
  return InParallel(files.size(), kParallel, [&](size_t i) -> absl::Status {
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

absl::StatusOr<PushResult> Push(s3::ManifestStore& bucket, const std::string& snapshot,
                                absl::Time now, PushMemory* memory) {
  TY_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(snapshot));
  manifest.is_continuous = memory != nullptr;
  TY_ASSIGN_OR_RETURN(const s3::Version newest, bucket.Latest());
  Manifest before;
  if (newest.number > 0) {
    // A newest version that is none of ours must not be followed by one of ours.
    TY_ASSIGN_OR_RETURN(before, ParseManifest(newest.content, "the newest version in the bucket"));
    TY_RETURN_IF_ERROR(CheckWriter(before, manifest));
  }
  bool is_known = false;
  absl::Time listed = now;
  if (memory != nullptr) {
    TY_ASSIGN_OR_RETURN(const bool is_own, IsOwn(newest, *memory));
    // Until this push has succeeded, the bucket may have more than its newest version names.
    listed = std::exchange(memory->listed, absl::InfinitePast());
    is_known = is_own && now - listed < kListEvery;
    if (!is_known) listed = now;
  }
  TY_RETURN_IF_ERROR(CutIntoPieces(snapshot, before, manifest));
  TY_ASSIGN_OR_RETURN(const auto items, ItemsOf(manifest));
  TY_ASSIGN_OR_RETURN(const auto named, ItemsOf(before));
  Stored stored;
  if (is_known) {
    for (const auto& [digits, item] : named) stored.present.insert(digits);
  } else {
    TY_ASSIGN_OR_RETURN(stored, StoredOf(bucket, items, named, now));
  }
  std::vector<Item> small;
  std::vector<Item> large;
  for (const auto& [digits, item] : items) {
    if (stored.present.contains(digits)) continue;
    const bool is_large = item.blob.size >= s3::TransferOptions().multipart_from;
    (is_large ? large : small).push_back(item);
  }
  std::atomic<int64_t> sent_bytes = 0;
  Mutex mutex;
  std::set<std::string> sent;  // the paths of files
  const auto send = [&](const Item& item) -> absl::Status {
    const std::string path = JoinPath(snapshot, item.path);
    if (item.is_piece) {
      TY_ASSIGN_OR_RETURN(const std::string piece,
                          ReadFileRange(path, item.offset, item.blob.size));
      if (s3::HexSha256(piece) != item.blob.sha256) {
        return error::CorruptFile(path, "it has changed while it was sent");
      }
      TY_RETURN_IF_ERROR(bucket.PutContent(piece, item.blob));
    } else if (is_known || stored.fading.contains(item.blob.sha256)) {
      TY_RETURN_IF_ERROR(bucket.ReplaceBlob(path, item.blob));
    } else {
      TY_ASSIGN_OR_RETURN(const bool is_sent, bucket.PutBlob(path, item.blob));
      if (!is_sent) return absl::OkStatus();
    }
    sent_bytes += item.blob.size;
    const MutexLock lock(&mutex);
    sent.insert(item.path);
    return absl::OkStatus();
  };
  TY_RETURN_IF_ERROR(InParallel(small.size(), kParallel, [&](size_t i) { return send(small[i]); }));
  for (const Item& item : large) TY_RETURN_IF_ERROR(send(item));
  const std::string text = TextOf(manifest);
  if (memory != nullptr) {
    memory->tried = s3::HexSha256(text);
    if (memory->save) TY_RETURN_IF_ERROR(memory->save());
  }
  TY_ASSIGN_OR_RETURN(const int64_t number, bucket.Commit(text, newest));
  if (memory != nullptr) {
    memory->committed = memory->tried;
    memory->listed = listed;
  }
  std::set<std::string> present;
  for (const auto& [digits, item] : items) {
    if (!sent.contains(item.path)) present.insert(item.path);
  }
  return PushResult{number, static_cast<int64_t>(sent.size()), sent_bytes,
                    static_cast<int64_t>(present.size())};
}

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

absl::StatusOr<int64_t> PruneBucket(s3::ManifestStore& bucket, int keep, absl::Time now,
                                    absl::Duration spare) {
  return bucket.Prune(keep, BlobsOf, now, spare);
}

}  // namespace trainyard::backup
