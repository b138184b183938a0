// Moves several files at the same time, since most of them are small and wait for the store.
#include "server/backup/bucket.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/in_parallel.h"
#include "common/base/status_macros.h"
#include "common/s3/file_transfer.h"
#include "common/tls/digest.h"
#include "server/backup/as_owner.h"
#include "server/backup/folder_lock.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {
namespace {

// So many small files at once hide the way to the store, and take at most 256 MiB of memory. Large
// ones, each of which goes in parts at the same time, follow one after the other.
constexpr size_t kParallel = 8;
constexpr absl::Duration kSpare = absl::Hours(24);
// A backup removes the folders *.partial of its directory, but not those with this suffix.
constexpr char kFetching[] = ".fetching";

// A file by its content; many files of a snapshot may have the same.
struct Item {
  std::string path;  // of one of the files
  s3::Blob blob;
};

absl::StatusOr<std::map<std::string, Item>> ItemsOf(const Manifest& manifest) {
  std::map<std::string, Item> items;
  for (const auto& [name, file] : manifest.files) {
    TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(file.sha256));
    items[digits] = {name, {digits, file.size}};
  }
  return items;
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
                                const std::set<std::string>& named, absl::Time now) {
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

absl::Status PullFiles(s3::ManifestStore& bucket, const Manifest& manifest,
                       const std::string& folder) {
  std::vector<std::pair<std::string, FileEntry>> files(manifest.files.begin(),
                                                       manifest.files.end());
  return InParallel(files.size(), kParallel, [&](size_t i) -> absl::Status {
    const auto& [name, file] = files[i];
    TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(file.sha256));
    const std::string path = JoinPath(folder, name);
    TY_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path).parent_path().string(), 0700));
    const absl::Status got = bucket.GetBlob({digits, file.size}, path, file.mode);
    if (got.ok()) return CheckSize(folder, name, file);
    if (!absl::IsNotFound(got)) return got;
    return error::CorruptFile(name, absl::StrCat("the bucket has lost it: ", got.message()));
  });
}

}  // namespace

absl::StatusOr<PushResult> Push(s3::ManifestStore& bucket, const std::string& snapshot,
                                absl::Time now) {
  TY_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(snapshot));
  TY_ASSIGN_OR_RETURN(const auto items, ItemsOf(manifest));
  TY_ASSIGN_OR_RETURN(const s3::Version before, bucket.Latest());
  std::set<std::string> named;
  if (before.number > 0) {
    // A newest version that is none of ours must not be followed by one of ours.
    TY_ASSIGN_OR_RETURN(named, BlobsOf(before.content));
  }
  TY_ASSIGN_OR_RETURN(const Stored stored, StoredOf(bucket, items, named, now));
  std::vector<Item> small;
  std::vector<Item> large;
  for (const auto& [digits, item] : items) {
    if (stored.present.contains(digits)) continue;
    const bool is_large = item.blob.size >= s3::TransferOptions().multipart_from;
    (is_large ? large : small).push_back(item);
  }
  std::atomic<int64_t> sent = 0;
  std::atomic<int64_t> sent_bytes = 0;
  const auto send = [&](const Item& item) -> absl::Status {
    const std::string path = JoinPath(snapshot, item.path);
    if (stored.fading.contains(item.blob.sha256)) {
      TY_RETURN_IF_ERROR(bucket.ReplaceBlob(path, item.blob));
    } else {
      TY_ASSIGN_OR_RETURN(const bool is_sent, bucket.PutBlob(path, item.blob));
      if (!is_sent) return absl::OkStatus();
    }
    ++sent;
    sent_bytes += item.blob.size;
    return absl::OkStatus();
  };
  TY_RETURN_IF_ERROR(InParallel(small.size(), kParallel, [&](size_t i) { return send(small[i]); }));
  for (const Item& item : large) TY_RETURN_IF_ERROR(send(item));
  TY_ASSIGN_OR_RETURN(const int64_t number, bucket.Commit(TextOf(manifest), before));
  return PushResult{number, sent, sent_bytes, static_cast<int64_t>(items.size()) - sent};
}

absl::StatusOr<std::string> Pull(s3::ManifestStore& bucket, const std::string& directory) {
  TY_ASSIGN_OR_RETURN(const s3::Version version, bucket.Latest());
  if (version.number == 0) {
    return absl::NotFoundError("this folder of the bucket has no backup; check its name");
  }
  TY_ASSIGN_OR_RETURN(const Manifest manifest,
                      ParseManifest(version.content, "the newest version in the bucket"));
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, LockFolder(directory, directory));
  const std::string folder = JoinPath(directory, FolderNameOf(manifest));
  if (FileExists(folder)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", folder, "' is there already; restore it, or choose another folder"));
  }
  const std::string partial = absl::StrCat(folder, kFetching);
  TY_RETURN_IF_ERROR(RemoveTree(partial));
  TY_RETURN_IF_ERROR(MakeDirectories(partial, 0700));
  absl::Status status = PullFiles(bucket, manifest, partial);
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

absl::StatusOr<int64_t> PruneBucket(s3::ManifestStore& bucket, int keep, absl::Time now) {
  return bucket.Prune(keep, BlobsOf, now, kSpare);
}

}  // namespace trainyard::backup
