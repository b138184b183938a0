// Makes one snapshot after the other, of which only the newest stays, for the links to it.
#include "server/backup/continuous.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "server/backup/as_owner.h"
#include "server/backup/stamp.h"

namespace trainyard::backup {
namespace {

// A version takes a manifest and some pieces, so they are removed now and then, and before long. A
// restore that reads a version that goes begins again with the next one.
constexpr absl::Duration kPruneEvery = absl::Hours(1);
constexpr absl::Duration kSpareOfOne = absl::Hours(1);
// A program that was killed leaves two: one that it had made, and the one before.
constexpr size_t kSnapshotsMax = 2;

// Returns true if the files are the same, whatever the times of the copies are.
bool AreSame(const std::map<std::string, FileEntry>& a, const std::map<std::string, FileEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.sha256 == other.second.sha256 &&
           one.second.mode == other.second.mode;
  });
}

}  // namespace

Continuous::Continuous(ContinuousOptions options, s3::ManifestStore& bucket, Clock& clock)
    : options_(std::move(options)), bucket_(bucket), clock_(clock), looked_(clock.Now()) {
  options_.backup.keep = 1;
  options_.backup.is_synced = false;  // what counts is in the bucket
  options_.backup.shares_files = true;
  options_.backup.databases = &databases_;
  memory_.save = [this] { return SaveMemory(); };
}

std::string Continuous::MemoryPath() const {
  return JoinPath(options_.backup.directory, "versions");
}

// The file has three lines: the place, and the hashes of the two manifests.
absl::Status Continuous::ReadMemory() {
  const auto text = ReadFile(MemoryPath());
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  TY_RETURN_IF_ERROR(text.status());
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  // This program knows nothing of another place.
  if (lines.size() < 3 || lines[0] != options_.place) return absl::OkStatus();
  memory_.committed = lines[1];
  memory_.tried = lines[2];
  return absl::OkStatus();
}

absl::Status Continuous::SaveMemory() const {
  TY_ASSIGN_OR_RETURN(const AsOwner owner, AsOwner::Become(options_.backup.state_dir));
  return WriteFileAtomically(
      MemoryPath(),
      absl::StrCat(options_.place, "\n", memory_.committed, "\n", memory_.tried, "\n"), 0600);
}

absl::StatusOr<BackupResult> Continuous::MakeSnapshot(const DirectoryLock& lock) {
  const std::string& directory = options_.backup.directory;
  TY_ASSIGN_OR_RETURN(const AsOwner owner, AsOwner::Become(options_.backup.state_dir));
  if (!is_begun_) {
    TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListSnapshots(directory));
    if (names.size() > kSnapshotsMax) {
      return absl::FailedPreconditionError(
          absl::StrCat("'", directory, "' has ", names.size(),
                       " snapshots, of which --every would keep one; give it a folder of its own"));
    }
    TY_RETURN_IF_ERROR(ReadMemory());
  }
  TY_ASSIGN_OR_RETURN(BackupResult made, Backup(options_.backup, lock));
  // A loss of files keeps Backup from removing older snapshots, which it would then add without
  // end. The versions in the bucket stay in their place.
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListSnapshots(directory));
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    if (path != made.snapshot) TY_RETURN_IF_ERROR(RemoveTree(path));
  }
  is_begun_ = true;
  return made;
}

absl::StatusOr<Continuous::Round> Continuous::Turn(const DirectoryLock& lock) {
  const absl::Time begin = clock_.Now();
  options_.backup.now = begin;
  TY_ASSIGN_OR_RETURN(BackupResult made, MakeSnapshot(lock));
  Round round;
  round.lost = std::move(made.lost);
  TY_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(made.snapshot));
  if (!pushed_.has_value() || !AreSame(*pushed_, manifest.files)) {
    TY_ASSIGN_OR_RETURN(round.pushed, Push(bucket_, made.snapshot, begin, &memory_));
    pushed_ = std::move(manifest.files);
  }
  round.behind = clock_.Now() - std::exchange(looked_, begin);
  Stamp(options_.backup.state_dir, kContinuousStamp);
  // A file that is lost may be in an older version.
  if (round.lost.empty() && begin - pruned_ >= kPruneEvery) {
    round.pruned = PruneBucket(bucket_, options_.versions, begin, kSpareOfOne).status();
    pruned_ = begin;
  }
  return round;
}

absl::Duration PauseAfter(absl::Duration took, absl::Duration every) {
  return std::max(every - took, took);
}

}  // namespace trainyard::backup
