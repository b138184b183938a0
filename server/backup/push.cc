// Sends several files at the same time, since most of them are small and wait for the store.
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
#include "server/backup/bucket.h"
#include "server/backup/items.h"
#include "server/backup/manifest.h"

namespace trainyard::backup {
namespace {

// An object that somebody else has removed from the bucket is missed after this time at the latest.
constexpr absl::Duration kListEvery = absl::Hours(1);

using Items = std::map<std::string, Item>;

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
absl::StatusOr<Stored> StoredOf(s3::ManifestStore& bucket, const Items& items, const Items& named,
                                absl::Time now) {
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

// Sends items, and counts them by their files.
class Sender {
 public:
  Sender(s3::ManifestStore& bucket, const std::string& snapshot, const Stored& stored)
      : bucket_(bucket), snapshot_(snapshot), stored_(stored) {}

  // Sends what the bucket lacks: small items at the same time, and then the large ones, each of
  // which goes in parts at the same time, one after the other. With `is_listed`, it has been
  // listed, and what it does not have may still have come in the meantime.
  absl::Status SendMissing(const Items& items, bool is_listed) {
    std::vector<const Item*> small;
    std::vector<const Item*> large;
    for (const auto& [digits, item] : items) {
      if (stored_.present.contains(digits)) continue;
      const bool is_large = item.blob.size >= s3::TransferOptions().multipart_from;
      (is_large ? large : small).push_back(&item);
    }
    TY_RETURN_IF_ERROR(InParallel(small.size(), kItemsAtOnce,
                                  [&](size_t i) { return Send(*small[i], is_listed); }));
    for (const Item* item : large) TY_RETURN_IF_ERROR(Send(*item, is_listed));
    return absl::OkStatus();
  }

  PushResult ResultOf(const Items& items, int64_t version) {
    const MutexLock lock(&mutex_);
    std::set<std::string> present;
    for (const auto& [digits, item] : items) {
      if (!sent_.contains(item.path)) present.insert(item.path);
    }
    return {version, static_cast<int64_t>(sent_.size()), sent_bytes_,
            static_cast<int64_t>(present.size())};
  }

 private:
  absl::Status Send(const Item& item, bool is_listed) {
    const std::string path = JoinPath(snapshot_, item.path);
    if (item.is_piece) {
      TY_ASSIGN_OR_RETURN(const std::string piece,
                          ReadFileRange(path, item.offset, item.blob.size));
      if (s3::HexSha256(piece) != item.blob.sha256) {
        return error::CorruptFile(path, "it has changed while it was sent");
      }
      TY_RETURN_IF_ERROR(bucket_.PutContent(piece, item.blob));
    } else if (!is_listed || stored_.fading.contains(item.blob.sha256)) {
      TY_RETURN_IF_ERROR(bucket_.ReplaceBlob(path, item.blob));
    } else {
      TY_ASSIGN_OR_RETURN(const bool is_sent, bucket_.PutBlob(path, item.blob));
      if (!is_sent) return absl::OkStatus();
    }
    const MutexLock lock(&mutex_);
    sent_bytes_ += item.blob.size;
    sent_.insert(item.path);
    return absl::OkStatus();
  }

  s3::ManifestStore& bucket_;
  const std::string& snapshot_;
  const Stored& stored_;
  Mutex mutex_;
  std::set<std::string> sent_ ABSL_GUARDED_BY(mutex_);  // the paths of files
  int64_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

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
  TY_ASSIGN_OR_RETURN(const Items items, ItemsOf(manifest));
  TY_ASSIGN_OR_RETURN(const Items named, ItemsOf(before));
  Stored stored;
  if (is_known) {
    for (const auto& [digits, item] : named) stored.present.insert(digits);
  } else {
    TY_ASSIGN_OR_RETURN(stored, StoredOf(bucket, items, named, now));
  }
  Sender sender(bucket, snapshot, stored);
  TY_RETURN_IF_ERROR(sender.SendMissing(items, /*is_listed=*/!is_known));
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
  return sender.ResultOf(items, number);
}

absl::StatusOr<int64_t> PruneBucket(s3::ManifestStore& bucket, int keep, absl::Time now,
                                    absl::Duration spare) {
  return bucket.Prune(keep, BlobsOf, now, spare);
}

}  // namespace trainyard::backup
