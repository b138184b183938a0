// Judges the disks that hold state, and the data sets.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/doctor/judge.h"
#include "common/base/strings.h"

namespace trainyard::doctor {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr double kMebibyte = 1 << 20;
constexpr int64_t kLittleSpace = 10 * kGibibyte;
constexpr int64_t kAlmostNoSpace = kGibibyte;
// docs/admin.md says that somebody should act from here on.
constexpr double kMuchUsed = 0.8;
constexpr double kFewFiles = 0.05;
// A checkpoint of a gigabyte should not take a minute.
constexpr double kSlowBytesPerSecond = 20 * kMebibyte;
// Each acknowledged submission is one commit.
constexpr absl::Duration kSlowCommit = absl::Milliseconds(50);
constexpr size_t kPathsShown = 5;

enum class Sort { kLocal, kMemory, kNetwork, kUserSpace };

struct FileSystem {
  uint64_t number;
  const char* name;
  Sort sort;
};

// The numbers are those of statfs(2) and linux/magic.h.
constexpr FileSystem kFileSystems[] = {
    {0xef53, "ext4", Sort::kLocal},         {0x58465342, "xfs", Sort::kLocal},
    {0x9123683e, "btrfs", Sort::kLocal},    {0x2fc12fc1, "zfs", Sort::kLocal},
    {0xf2f52010, "f2fs", Sort::kLocal},     {0x794c7630, "overlayfs", Sort::kLocal},
    {0x01021994, "tmpfs", Sort::kMemory},   {0x858458f6, "ramfs", Sort::kMemory},
    {0x6969, "NFS", Sort::kNetwork},        {0x517b, "SMB", Sort::kNetwork},
    {0xff534d42, "CIFS", Sort::kNetwork},   {0xfe534d42, "SMB2", Sort::kNetwork},
    {0x00c36400, "Ceph", Sort::kNetwork},   {0x0bd00bd0, "Lustre", Sort::kNetwork},
    {0x47504653, "GPFS", Sort::kNetwork},   {0x19830326, "BeeGFS", Sort::kNetwork},
    {0x5346414f, "AFS", Sort::kNetwork},    {0x01021997, "9p", Sort::kNetwork},
    {0x65735546, "FUSE", Sort::kUserSpace},
};

FileSystem FileSystemOf(uint64_t number) {
  for (const FileSystem& known : kFileSystems) {
    if (known.number == number) return known;
  }
  return {number, "an unknown file system", Sort::kLocal};
}

std::string SomeOf(const std::vector<std::string>& texts) {
  const size_t shown = std::min(texts.size(), kPathsShown);
  std::string text = absl::StrJoin(texts.begin(), texts.begin() + static_cast<long>(shown), ", ");
  if (texts.size() > shown) absl::StrAppend(&text, " and ", texts.size() - shown, " more");
  return text;
}

}  // namespace

Finding JudgeFileSystem(const DiskFacts& disk) {
  const std::string check = absl::StrCat("file system of ", disk.folder);
  const FileSystem system = FileSystemOf(disk.file_system);
  switch (system.sort) {
    case Sort::kNetwork:
      return Problem(check,
                     absl::StrCat(disk.folder, " is on a network (", system.name,
                                  "), where databases are lost and locks do not hold."),
                     "Put state directories on a disk of this host with --state_dir (or "
                     "`trainyard up --state-dir`). Data sets may stay on the network.");
    case Sort::kMemory:
      return Warning(check,
                     absl::StrCat(disk.folder, " is in memory (", system.name,
                                  "), and gone when the machine restarts."),
                     "Put state directories on a disk with --state_dir.");
    case Sort::kUserSpace:
      return Warning(check, absl::StrCat(disk.folder, " is on a file system of a program (FUSE)."),
                     "If that is a network (sshfs, s3fs), put state directories on a disk of this "
                     "host with --state_dir.");
    case Sort::kLocal:
      break;
  }
  return Ok(check, absl::StrCat(disk.folder, " is on this host (", system.name, ")."));
}

Finding JudgeSpace(const DiskFacts& disk) {
  const std::string check = absl::StrCat("space of ", disk.folder);
  const std::string space =
      absl::StrCat(FormatBytes(disk.free_bytes), " of ", FormatBytes(disk.size_bytes), " are free");
  const char* advice =
      "`trainyard usage --largest 20` shows what is large, `trainyard rm` and the rules "
      "--keep_jobs and --keep_checkpoints of the server free it.";
  if (disk.free_bytes < kAlmostNoSpace) {
    return Problem(check, absl::StrCat("The disk of ", disk.folder, " is full: ", space, "."),
                   advice);
  }
  const double used =
      1 - static_cast<double>(disk.free_bytes) / static_cast<double>(disk.size_bytes);
  if (disk.free_bytes < kLittleSpace || used > kMuchUsed) {
    return Warning(check,
                   absl::StrCat("The disk of ", disk.folder, " has little space: ", space, "."),
                   advice);
  }
  if (disk.free_files < kFewFiles) {
    return Warning(check,
                   absl::StrFormat("The disk of %s has few inodes left (%.1f %%).", disk.folder,
                                   disk.free_files * 100),
                   "Remove folders with many small files.");
  }
  return Ok(check, absl::StrCat("On the disk of ", disk.folder, ", ", space, "."));
}

Findings JudgeSpeed(const DiskFacts& disk) {
  const std::string check = absl::StrCat("speed of ", disk.folder);
  if (!disk.error.empty()) {
    return {Problem(check,
                    absl::StrCat("Nothing can be written to ", disk.folder, ": ", disk.error),
                    "Look whether its disk is full, broken, or mounted for reading only.")};
  }
  if (!disk.bytes_per_second.has_value() || !disk.commit.has_value()) return {};
  const std::string speed =
      absl::StrFormat("%s takes %.0f MiB/s, and a commit takes %.1f ms.", disk.folder,
                      *disk.bytes_per_second / kMebibyte, absl::ToDoubleMilliseconds(*disk.commit));
  if (*disk.bytes_per_second < kSlowBytesPerSecond || *disk.commit > kSlowCommit) {
    return {Warning(check, absl::StrCat("The disk is slow: ", speed),
                    "Use another disk for state directories, since submissions and checkpoints "
                    "wait for it.")};
  }
  return {Ok(check, speed)};
}

Findings JudgeDatasets(const DatasetFacts& datasets) {
  const std::string check = "data sets";
  if (datasets.folder.empty()) {
    return {Ok(check,
               "No worker of this host names a folder of data sets (--dataset_dir), so only "
               "generated ones (glyphs) can be used.")};
  }
  const std::string names =
      absl::StrCat(datasets.named_by, " names ", datasets.folder, " as --dataset_dir");
  if (!datasets.exists) {
    return {Problem(check, absl::StrCat(names, ", but there is no such folder."),
                    absl::StrCat("Mount or make it; `trainyard data fetch cifar10 --dataset-dir ",
                                 datasets.folder, "` downloads a public set."))};
  }
  Findings findings;
  if (datasets.is_for_all && !datasets.closed.empty()) {
    findings.push_back(Problem(
        check,
        absl::StrCat("Not everybody can read ", SomeOf(datasets.closed),
                     ", so a worker with --run_as owner does not know what is there."),
        absl::StrCat("Run `chmod -R o+rX ", datasets.folder,
                     "`, and let others pass through the folders above it (`chmod o+x`).")));
  }
  if (!datasets.errors.empty()) {
    findings.push_back(
        Warning(check, absl::StrCat("Some data sets cannot be used: ", SomeOf(datasets.errors)),
                absl::StrCat("`trainyard data verify --dataset-dir ", datasets.folder,
                             "` says what is missing.")));
  }
  if (!datasets.error.empty()) {
    findings.push_back(
        Warning(check, absl::StrCat(names, ", but nobody knows what is there: ", datasets.error),
                absl::StrCat("Run `trainyard data ls --dataset-dir ", datasets.folder, "`.")));
  } else if (datasets.names.empty()) {
    findings.push_back(Warning(check, absl::StrCat(names, ", but no data sets are there."),
                               absl::StrCat("`trainyard data fetch cifar10 --dataset-dir ",
                                            datasets.folder, "` downloads a public set.")));
  } else {
    findings.push_back(Ok(check, absl::StrCat("In ", datasets.folder, " there are ",
                                              absl::StrJoin(datasets.names, ", "), ".")));
  }
  return findings;
}

}  // namespace trainyard::doctor
