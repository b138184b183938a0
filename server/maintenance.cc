// Each word gathers its options, and leaves a task that runs after all flags are known.
#include "server/maintenance.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "server/backup/as_owner.h"
#include "server/backup/backup.h"
#include "server/backup/bucket.h"
#include "server/backup/check.h"
#include "server/backup/folder_lock.h"
#include "server/backup/packed.h"
#include "server/backup/stamp.h"
#include "server/backup_loop.h"
#include "server/bucket_flags.h"
#include "server/restore_state.h"

namespace trainyard {
namespace {

constexpr absl::Duration kEveryMin = absl::Milliseconds(100);
constexpr absl::Duration kEveryMax = absl::Hours(1);

// Renaming needs the name of the folder itself, without a slash at its end.
std::string Absolute(const std::string& path) {
  std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "trainyard-server: " << status.message() << "\n";
  return 1;
}

absl::Status PushTo(const BucketFlags& flags, const std::string& snapshot, int keep,
                    absl::Time now) {
  TY_ASSIGN_OR_RETURN(const OpenedBucket bucket, OpenBucket(flags, /*is_for_writing=*/true));
  TellOfConditions(bucket, flags.place);
  TY_ASSIGN_OR_RETURN(const backup::PushResult pushed, backup::Push(*bucket.store, snapshot, now));
  std::cout << flags.place << ": version " << pushed.version << ", " << FilesText(pushed.sent)
            << " sent (" << FormatBytes(pushed.sent_bytes) << "), " << FilesText(pushed.present)
            << " there already\n";
  if (keep == 0) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const int64_t removed, backup::PruneBucket(*bucket.store, keep, now));
  if (removed > 0) std::cout << FilesText(removed) << " of old versions removed\n";
  return absl::OkStatus();
}

absl::StatusOr<backup::BackupResult> BackUpAsOwner(const backup::BackupOptions& options,
                                                   const DirectoryLock& lock) {
  TY_ASSIGN_OR_RETURN(const backup::AsOwner owner, backup::AsOwner::Become(options.state_dir));
  return backup::Backup(options, lock);
}

// The snapshot is there and has all that is left, but if something is lost, the caller has to know.
absl::Status EndBackup(const std::string& state_dir, const backup::BackupResult& made) {
  if (made.lost.empty()) {
    backup::Stamp(state_dir, backup::kSnapshotStamp);
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "the state directory has lost ", FilesText(static_cast<int64_t>(made.lost.size())),
      " of checkpoints, which the backup does not have either: '", made.lost.front(),
      made.lost.size() > 1 ? "' and others" : "'",
      "; run `trainyard-server check`, and take them from an older snapshot. None is removed "
      "until then"));
}

absl::Status BackUp(backup::BackupOptions options, const BucketFlags& bucket) {
  const bool is_file = absl::EndsWith(options.directory, backup::kPackedSuffix);
  if (is_file && !bucket.place.empty()) {
    return absl::InvalidArgumentError(
        "--bucket copies a snapshot, and not a file; name a folder of snapshots");
  }
  if (is_file && options.keep > 0) {
    return absl::InvalidArgumentError("--keep is for a folder of snapshots, and not for a file");
  }
  const std::string file = options.directory;
  if (is_file) options.directory = absl::StrCat(file, ".snapshot");
  // Nobody else works in the folder until the end: no other backup to the same file, and none whose
  // --keep removes the snapshot that is being sent.
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, backup::LockSnapshots(options));
  const auto made = BackUpAsOwner(options, lock);
  if (is_file) {
    absl::Status packed = made.status();
    if (packed.ok()) packed = backup::Pack(made->snapshot, file);
    const absl::Status removed = backup::RemoveLocked(options.directory);
    TY_RETURN_IF_ERROR(packed);
    TY_RETURN_IF_ERROR(removed);
    TY_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(file));
    std::cout << file << ": " << FormatBytes(bytes) << " with " << FilesText(made->copied) << "\n";
    return EndBackup(options.state_dir, *made);
  }
  TY_RETURN_IF_ERROR(made.status());
  for (const std::string& why : made->unreadable) {
    std::cerr << "trainyard-server: no file was linked to a newer snapshot: " << why << "\n";
  }
  std::cout << made->snapshot << ": " << FilesText(made->copied) << " copied, "
            << FilesText(made->linked) << " as in the snapshot before\n";
  for (const std::string& name : made->removed) std::cout << name << " was removed\n";
  if (!bucket.place.empty()) {
    const int keep = made->lost.empty() ? options.keep : 0;
    TY_RETURN_IF_ERROR(PushTo(bucket, made->snapshot, keep, options.now));
  }
  return EndBackup(options.state_dir, *made);
}

absl::Status BackUpEvery(const std::string& every, const backup::BackupOptions& options,
                         const BucketFlags& bucket) {
  if (bucket.place.empty() || absl::EndsWith(options.directory, backup::kPackedSuffix)) {
    return absl::InvalidArgumentError(
        "--every keeps a bucket up to date; give it --bucket s3://BUCKET/FOLDER, and a folder for "
        "the newest snapshot");
  }
  const auto interval = ParseDuration(every);
  if (!interval.ok() || *interval < kEveryMin || *interval > kEveryMax) {
    return absl::InvalidArgumentError(absl::StrCat("--every is '", every,
                                                   "'; expected a time from 100ms to 1h, such as "
                                                   "5s"));
  }
  return BackUpUntilStopped({options, bucket, *interval});
}

absl::Status Fetch(const BucketFlags& flags, const std::string& directory) {
  TY_ASSIGN_OR_RETURN(const OpenedBucket bucket, OpenBucket(flags, /*is_for_writing=*/false));
  TY_ASSIGN_OR_RETURN(const std::string folder, backup::Pull(*bucket.store, directory));
  std::cout << folder << " is whole; `trainyard-server restore` makes the state directory of it."
            << AgeOf(folder, Clock::Real()->Now()) << "\n";
  return absl::OkStatus();
}

void AddBackup(CLI::App& app, const std::string& state_dir, const BucketFlags& of_server,
               std::function<int()>& task) {
  auto options = std::make_shared<backup::BackupOptions>();
  CLI::App* verb = app.add_subcommand(
      "backup",
      "Copy the state directory, also while the server runs. A folder gets a snapshot DIR/<time>/, "
      "whose files are links to those of the snapshot before where nothing has changed; a name "
      "that ends in .tar gets a single file");
  verb->add_option("dir", options->directory, "The folder of all snapshots, or FILE.tar")
      ->required()
      ->type_name("DIR");
  verb->add_option("--keep", options->keep,
                   "Remove the oldest snapshots, so that this many stay; 0 keeps all")
      ->check(CLI::NonNegativeNumber)
      ->type_name("NUMBER");
  auto bucket = std::make_shared<BucketFlags>();
  verb->add_option(
          "--bucket", bucket->place,
          "Then copy the snapshot to s3://BUCKET/FOLDER: only what that lacks is sent, and "
          "--keep holds for its versions too")
      ->type_name("PLACE");
  AddBucketFlags(*verb, *bucket);
  auto every = std::make_shared<std::string>();
  verb->add_option(
          "--every", *every,
          "Go on until SIGTERM, and look this often if anything has changed that the bucket "
          "does not have yet: 5s. DIR has one snapshot then, and --keep [10] holds for the "
          "bucket")
      ->type_name("DURATION");
  verb->callback([options, bucket, every, &state_dir, &of_server, &task] {
    TakeDefaults(of_server, *bucket);
    options->state_dir = Absolute(state_dir);
    options->directory = Absolute(options->directory);
    task = [options, bucket, every] {
      options->now = Clock::Real()->Now();
      return ExitCodeOf(every->empty() ? BackUp(*options, *bucket)
                                       : BackUpEvery(*every, *options, *bucket));
    };
  });
}

void AddFetch(CLI::App& app, const BucketFlags& of_server, std::function<int()>& task) {
  struct FetchOptions {
    BucketFlags bucket;
    std::string directory;
  };
  auto options = std::make_shared<FetchOptions>();
  CLI::App* verb = app.add_subcommand(
      "fetch", "Make the snapshot DIR/<time>/ from a bucket to which backup has copied it");
  verb->add_option("place", options->bucket.place, "s3://BUCKET/FOLDER")
      ->required()
      ->type_name("PLACE");
  verb->add_option("dir", options->directory, "The folder of snapshots")
      ->required()
      ->type_name("DIR");
  AddBucketFlags(*verb, options->bucket);
  verb->callback([options, &of_server, &task] {
    TakeDefaults(of_server, options->bucket);
    task = [options] { return ExitCodeOf(Fetch(options->bucket, Absolute(options->directory))); };
  });
}

void AddRestore(CLI::App& app, const std::string& state_dir, const BucketFlags& of_server,
                std::function<int()>& task) {
  auto flags = std::make_shared<RestoreFlags>();
  CLI::App* verb = app.add_subcommand(
      "restore", "Make the state directory from a snapshot, while no server uses it");
  verb->add_option("snapshot", flags->options.snapshot,
                   "DIR/<time> or FILE.tar, as backup has made it, or s3://BUCKET/FOLDER for the "
                   "newest version there")
      ->required()
      ->type_name("SNAPSHOT");
  verb->add_flag("--replace", flags->options.replace,
                 "Move a state directory that is not empty to STATE_DIR.before-<time>");
  verb->add_flag("--if_lost", flags->if_lost,
                 "Succeed without a change if there is a database, or if the bucket has no backup "
                 "yet: for a host that comes up by itself, before the server starts");
  AddBucketFlags(*verb, flags->bucket);
  verb->callback([flags, &state_dir, &of_server, &task] {
    TakeDefaults(of_server, flags->bucket);
    flags->options.state_dir = Absolute(state_dir);
    if (!IsInBucket(flags->options.snapshot)) {
      flags->options.snapshot = Absolute(flags->options.snapshot);
    }
    task = [flags] {
      flags->options.now = Clock::Real()->Now();
      return ExitCodeOf(RunRestore(*flags));
    };
  });
}

void AddCheck(CLI::App& app, const std::string& state_dir, std::function<int()>& task) {
  struct CheckOptions {
    std::string directory;
    std::string output = "table";
  };
  auto options = std::make_shared<CheckOptions>();
  CLI::App* verb = app.add_subcommand(
      "check", "Look for damage in a state directory, also of a running server, or in a snapshot");
  verb->add_option("dir", options->directory, "A state directory or a snapshot [STATE_DIR]")
      ->type_name("DIR");
  verb->add_option("-o,--output", options->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->type_name("FORMAT");
  verb->callback([options, &state_dir, &task] {
    const std::string directory =
        Absolute(options->directory.empty() ? state_dir : options->directory);
    task = [options, directory] {
      const auto owner = backup::AsOwner::Become(directory);
      if (!owner.ok()) return ExitCodeOf(owner.status());
      const auto result = backup::Check(directory);
      if (!result.ok()) return ExitCodeOf(result.status());
      std::cout << (options->output == "json" ? backup::JsonOf(*result) : backup::TableOf(*result));
      return result->damages.empty() ? 0 : 1;
    };
  });
}

}  // namespace

void AddMaintenance(CLI::App& app, const std::string& state_dir, const BucketFlags& bucket,
                    std::function<int()>& task) {
  app.fallthrough();  // --state_dir may stand behind the word
  app.require_subcommand(0, 1);
  AddBackup(app, state_dir, bucket, task);
  AddFetch(app, bucket, task);
  AddRestore(app, state_dir, bucket, task);
  AddCheck(app, state_dir, task);
}

}  // namespace trainyard
