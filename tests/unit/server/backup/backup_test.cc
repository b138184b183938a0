// Tests backup, restore and check on the files of a small state directory.
#include "server/backup/backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "server/backup/check.h"
#include "server/backup/manifest.h"
#include "server/backup/packed.h"
#include "server/backup/restore.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::backup {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

ino_t InodeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

class BackupTest : public ::testing::Test {
 protected:
  BackupTest() {
    EXPECT_TRUE(MakeDirectories(state_, 0700).ok());
    auto store = store::OpenSqliteStore(JoinPath(state_, "trainyard.db"));
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    Put("logs/1/1/0.log", "step 1\n");
    blob_ = AddCheckpoint(10, "weights");
  }

  void Put(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(state_, name);
    EXPECT_TRUE(MakeDirectories(path.substr(0, path.rfind('/')), 0700).ok());
    EXPECT_TRUE(WriteFileAtomically(path, content, 0600).ok());
  }
  absl::StatusOr<BackupResult> BackUp(int second, int keep = 0) {
    return BackUp(Options(second, keep));
  }
  BackupOptions Options(int second, int keep = 0) const {
    return {state_, snapshots_, keep, kNow + absl::Seconds(second)};
  }
  static absl::StatusOr<BackupResult> BackUp(const BackupOptions& options) {
    const auto lock = LockSnapshots(options);
    if (!lock.ok()) return lock.status();
    return Backup(options, *lock);
  }
  // Makes a checkpoint of job 1 that has one file. Returns the path of the file.
  std::string AddCheckpoint(int step, const std::string& content) {
    const std::string hash = ContentHash(content);
    const std::string name = *BlobName(hash);
    Put(name, content);
    Run(
        absl::StrCat("INSERT INTO checkpoints (job, step, attempt, create_us, is_evaluated, loss, "
                     "accuracy) VALUES (1, ",
                     step,
                     ", 1, 0, 0, 0.0, 0.0);"
                     "INSERT INTO checkpoint_files (job, step, name, size, hash) VALUES (1, ",
                     step, ", 'model', ", content.size(), ", '", hash, "');"));
    return name;
  }
  void DropCheckpoint(int step, const std::string& name) {
    Run(absl::StrCat("DELETE FROM checkpoint_files WHERE step = ", step, ";",
                     "DELETE FROM checkpoints WHERE step = ", step, ";"));
    EXPECT_EQ(unlink(JoinPath(state_, name).c_str()), 0);
  }
  void Run(const std::string& sql) {
    auto db =
        store::Database::Open(JoinPath(state_, "trainyard.db"), store::Database::Mode::kDurable);
    const absl::Status status = (*db)->Execute(absl::StrCat("PRAGMA foreign_keys = OFF;", sql));
    EXPECT_TRUE(status.ok()) << status;
  }
  absl::StatusOr<RestoreResult> Restored(const std::string& snapshot, bool replace = false) {
    return Restore({snapshot, state_, replace, kNow});
  }

  testing::TempDir dir_;
  const std::string state_ = dir_.File("state");
  const std::string snapshots_ = dir_.File("snapshots");
  std::string blob_;
  std::unique_ptr<store::Store> store_;
};

TEST_F(BackupTest, LinksWhatHasNotChangedAndKeepsTheNewest) {
  const auto first = BackUp(0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->linked, 0);
  Put("logs/1/1/0.log", "step 1\nstep 2\n");
  const auto second = BackUp(1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->linked, 1);
  EXPECT_EQ(InodeOf(JoinPath(first->snapshot, blob_)), InodeOf(JoinPath(second->snapshot, blob_)));
  EXPECT_EQ(*ReadFile(JoinPath(first->snapshot, "logs/1/1/0.log")), "step 1\n");
  EXPECT_EQ(*ReadFile(JoinPath(second->snapshot, "logs/1/1/0.log")), "step 1\nstep 2\n");
  const auto third = BackUp(2, /*keep=*/2);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_THAT(third->removed, ElementsAre("20231114T221320Z"));
  EXPECT_THAT(*ListSnapshots(snapshots_), ElementsAre("20231114T221321Z", "20231114T221322Z"));
  EXPECT_THAT(Check(third->snapshot)->damages, IsEmpty());
}

TEST_F(BackupTest, WhatComesAndGoesWhileItRunsIsThereOrIsNotNamed) {
  std::vector<std::string> names;
  BackupOptions options = Options(0);
  options.before_databases = [&] {
    names.push_back(AddCheckpoint(20 + static_cast<int>(names.size()),
                                  absl::StrCat("more weights ", names.size())));
  };
  options.after_databases = [&] {
    if (names.size() == 1) DropCheckpoint(20, names[0]);
  };
  const auto made = BackUp(options);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_THAT(names, SizeIs(2)) << "the databases are copied again because of what has gone";
  EXPECT_THAT(made->lost, IsEmpty());
  EXPECT_THAT(Check(made->snapshot)->damages, IsEmpty());
  EXPECT_FALSE(FileExists(JoinPath(made->snapshot, names[0])));
  EXPECT_EQ(*ReadFile(JoinPath(made->snapshot, names[1])), "more weights 1")
      << "the second pass finds it";
  EXPECT_EQ(made->copied, static_cast<int64_t>(ReadManifest(made->snapshot)->files.size()));
}

TEST_F(BackupTest, WhatTheStateHasLostIsNamedAndNoOlderSnapshotGoes) {
  ASSERT_TRUE(BackUp(0).ok());
  ASSERT_EQ(unlink(JoinPath(state_, blob_).c_str()), 0);
  int rounds = 0;
  BackupOptions options = Options(1, /*keep=*/1);
  options.after_databases = [&] { ++rounds; };
  const auto made = BackUp(options);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(rounds, 3);
  EXPECT_THAT(made->lost, ElementsAre(blob_));
  EXPECT_THAT(made->removed, IsEmpty());
  EXPECT_THAT(*ListSnapshots(snapshots_), SizeIs(2));
}

TEST_F(BackupTest, AFileThatWasCutInTheSnapshotBeforeIsCopiedAnew) {
  const auto first = BackUp(0);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(truncate(JoinPath(first->snapshot, blob_).c_str(), 3), 0);
  const auto second = BackUp(1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*ReadFile(JoinPath(second->snapshot, blob_)), "weights");
  EXPECT_THAT(Check(second->snapshot)->damages, IsEmpty());
}

TEST_F(BackupTest, ADamagedManifestOfTheNewestSnapshotStopsNoOther) {
  ASSERT_TRUE(BackUp(0).ok());
  const auto second = BackUp(1);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(WriteFileAtomically(JoinPath(second->snapshot, kManifestName), "{").ok());
  const auto third = BackUp(2);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->linked, 2) << "to the first one";
  EXPECT_THAT(third->unreadable, ElementsAre(HasSubstr("20231114T221321Z")));
}

TEST_F(BackupTest, AManifestThatIsTooLongToBeReadIsNotWritten) {
  const std::string folder = dir_.File("snapshot");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  const Manifest manifest = {"1.0", "2026-11-28T10:00:00+00:00", 1, {}};
  const auto size = static_cast<int64_t>(TextOf(manifest).size());
  EXPECT_TRUE(absl::IsResourceExhausted(WriteManifest(folder, manifest, size - 1)));
  EXPECT_FALSE(FileExists(JoinPath(folder, kManifestName)));
  EXPECT_TRUE(WriteManifest(folder, manifest, size).ok());
  EXPECT_LE(kManifestBytesMax, kReadFileMaxBytes);
}

TEST_F(BackupTest, RefusesASecondOneAtTheSameTime) {
  ASSERT_TRUE(MakeDirectories(snapshots_, 0700).ok());
  const auto lock = DirectoryLock::Acquire(snapshots_);
  EXPECT_EQ(ErrorReason(BackUp(0).status()), "STATE_LOCKED");
}

TEST_F(BackupTest, LeavesNoHalfSnapshotWhenTheDiskIsFull) {
  const auto first = BackUp(0);
  ASSERT_TRUE(first.ok()) << first.status();
  Put("logs/1/1/0.log", std::string(1 << 22, 'x'));
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1 << 21, 1 << 21};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(BackUp(1).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(*ListDirectory(snapshots_), ElementsAre("20231114T221320Z", "lock"));
  EXPECT_THAT(Check(first->snapshot)->damages, IsEmpty());
}

TEST_F(BackupTest, RemovesWhatABackupThatWasKilledHasLeft) {
  ASSERT_TRUE(MakeDirectories(JoinPath(snapshots_, "20231114T221300Z.partial"), 0700).ok());
  ASSERT_TRUE(BackUp(0).ok());
  EXPECT_THAT(*ListDirectory(snapshots_), ElementsAre("20231114T221320Z", "lock"));
}

TEST_F(BackupTest, TellsOfADamagedDatabase) {
  ASSERT_TRUE(WriteFileAtomically(JoinPath(state_, "specs.db"), std::string(8192, 'x')).ok());
  const auto result = BackUp(0);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss) << result.status();
  EXPECT_THAT(*ListSnapshots(snapshots_), IsEmpty());
}

TEST_F(BackupTest, TellsOfADatabaseWithADamagedPage) {
  const std::string path = JoinPath(state_, "specs.db");
  {
    auto db = store::Database::Open(path, store::Database::Mode::kDurable);
    ASSERT_TRUE((*db)->Execute("PRAGMA journal_mode = DELETE; CREATE TABLE t (text TEXT);").ok());
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(
          (*db)
              ->Execute(absl::StrCat("INSERT INTO t VALUES ('", std::string(500, 'x'), "')"))
              .ok());
    }
  }
  ASSERT_TRUE(BackUp(0).ok());
  std::string bytes = *ReadFile(path);
  ASSERT_GT(bytes.size(), size_t{8 * 4096});
  bytes.replace(bytes.size() - 4096, 4096, std::string(4096, '\x7f'));
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  ASSERT_TRUE(store::Database::Open(path, store::Database::Mode::kReadOnly).ok());
  const auto result = BackUp(1);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss) << result.status();
  EXPECT_THAT(result.status().message(), HasSubstr("is damaged: "));
  EXPECT_THAT(*ListSnapshots(snapshots_), SizeIs(1));
}

TEST_F(BackupTest, CheckShowsABoundedNumberOfDamages) {
  std::string sql;
  for (int i = 0; i < 1'005; ++i) {
    absl::StrAppend(&sql, "INSERT INTO checkpoint_files (job, step, name, size, hash) VALUES (1, ",
                    100 + i, ", 'model', 7, '", ContentHash(absl::StrCat(i)), "');");
  }
  Run(absl::StrCat("BEGIN;", sql, "COMMIT;"));
  const auto damages = Check(state_)->damages;
  EXPECT_THAT(damages, SizeIs(1'001));
  EXPECT_THAT(damages.back(), HasSubstr(" findings are not shown"));
}

TEST_F(BackupTest, CheckFindsADamagedBlob) {
  EXPECT_THAT(Check(state_)->damages, IsEmpty());
  Put(blob_, "weighty");
  EXPECT_THAT(Check(state_)->damages, ElementsAre(HasSubstr("has other bytes")));
  unlink(JoinPath(state_, blob_).c_str());
  EXPECT_THAT(Check(state_)->damages, SizeIs(1));
}

TEST_F(BackupTest, RestoreRefusesAUsedAFilledAndADamagedOne) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  {
    const auto lock = DirectoryLock::Acquire(state_);
    EXPECT_EQ(ErrorReason(Restored(backup->snapshot, true).status()), "STATE_LOCKED");
  }
  EXPECT_THAT(Restored(backup->snapshot).status().message(), HasSubstr("is not empty"));
  ASSERT_TRUE(WriteFileAtomically(JoinPath(backup->snapshot, blob_), "weighty").ok());
  EXPECT_THAT(Restored(backup->snapshot, true).status().message(), HasSubstr("is damaged"));
  EXPECT_EQ(*ReadFile(JoinPath(state_, blob_)), "weights");
}

TEST_F(BackupTest, RestoreUnpacksNothingWhileAServerRuns) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  const std::string file = dir_.File("backup.tar");
  ASSERT_TRUE(Pack(backup->snapshot, file).ok());
  const auto lock = DirectoryLock::Acquire(state_);
  ASSERT_TRUE(MakeDirectories(state_ + ".unpacked/of-another", 0700).ok());
  EXPECT_EQ(ErrorReason(Restored(file, true).status()), "STATE_LOCKED");
  EXPECT_TRUE(FileExists(state_ + ".unpacked/of-another"));
}

TEST_F(BackupTest, TwoRestoresToANewDirectoryDoNotMeet) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  const std::string other = dir_.File("new/other");
  std::vector<absl::Status> statuses(4);
  std::vector<std::thread> threads;
  threads.reserve(statuses.size());
  for (absl::Status& status : statuses) {
    threads.emplace_back([&] {
      status = Restore({backup->snapshot, other, /*replace=*/false, kNow}).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), absl::OkStatus()), 1);
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
  }
  EXPECT_EQ(*ReadFile(JoinPath(other, blob_)), "weights");
  EXPECT_THAT(*ListDirectory(dir_.File("new")), ElementsAre("other"));
}

TEST_F(BackupTest, ARestoreThatFailsLeavesNoNewDirectory) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  ASSERT_TRUE(WriteFileAtomically(JoinPath(backup->snapshot, blob_), "weighty").ok());
  const std::string other = dir_.File("new/other");
  EXPECT_TRUE(absl::IsDataLoss(Restore({backup->snapshot, other, false, kNow}).status()));
  EXPECT_THAT(*ListDirectory(dir_.File("new")), IsEmpty());
}

// The kernel tells of renames in the order in which they happen.
TEST_F(BackupTest, NoMomentOfARestoreIsWithoutAStateDirectory) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  store_.reset();
  const UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch.get(), dir_.path().c_str(), IN_MOVED_FROM | IN_MOVED_TO), 0);
  const auto restored = Restored(backup->snapshot, /*replace=*/true);
  ASSERT_TRUE(restored.ok()) << restored.status();
  std::vector<std::string> moves;
  alignas(inotify_event) char buffer[4096];
  const ssize_t got = read(watch.get(), buffer, sizeof buffer);
  for (ssize_t at = 0; at < got;) {
    const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
    moves.push_back(
        absl::StrCat((event->mask & IN_MOVED_FROM) != 0 ? "from " : "to ", event->name));
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  const std::string aside = "state.before-20231114T221320Z";
  EXPECT_THAT(moves, ElementsAre("from state.restoring", "to " + aside, "from " + aside, "to state",
                                 "from state", "to " + aside));
}

TEST_F(BackupTest, RestoreGivesNoNumberAgain) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  core::Delta delta;
  delta.revision = 1;
  delta.next_job = 17;
  delta.next_event = 40;
  ASSERT_TRUE(store_->Commit(delta).ok());
  store_.reset();
  const auto restored = Restored(backup->snapshot, /*replace=*/true);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(FileExists(JoinPath(restored->aside, "trainyard.db")));
  EXPECT_EQ(*ReadFile(JoinPath(state_, blob_)), "weights");
  auto store = store::OpenSqliteStore(JoinPath(state_, "trainyard.db"));
  ASSERT_TRUE(store.ok()) << store.status();
  const auto snapshot = (*store)->Load();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->next_job, 17);
  EXPECT_EQ(snapshot->next_event, 40);
}

TEST_F(BackupTest, ABackupAfterARestoreLinksToTheOnesBefore) {
  const auto first = BackUp(0);
  ASSERT_TRUE(first.ok()) << first.status();
  store_.reset();
  ASSERT_TRUE(Restored(first->snapshot, /*replace=*/true).ok());
  const auto second = BackUp(1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->linked, 2) << "the log and the blob are as they were";
}

TEST_F(BackupTest, AFileHasAllOfASnapshot) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  const std::string file = dir_.File("backup.tar");
  ASSERT_TRUE(Pack(backup->snapshot, file).ok());
  const std::string unpacked = dir_.File("unpacked");
  ASSERT_TRUE(MakeDirectories(unpacked, 0700).ok());
  ASSERT_TRUE(Unpack(file, unpacked).ok());
  EXPECT_THAT(Check(unpacked)->damages, IsEmpty());
  const std::string other = dir_.File("other");
  const auto restored = Restore({unpacked, other, /*replace=*/false, kNow});
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->aside, "");
  EXPECT_EQ(restored->time, "2023-11-14T22:13:20+00:00");
  EXPECT_EQ(*ReadFile(JoinPath(other, blob_)), "weights");
}

TEST_F(BackupTest, AFileWithHolesIsNotPacked) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  ASSERT_EQ(unlink(JoinPath(backup->snapshot, blob_).c_str()), 0);
  const std::string file = dir_.File("backup.tar");
  const absl::Status status = Pack(backup->snapshot, file);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.message(), HasSubstr(blob_));
  EXPECT_FALSE(FileExists(file));
  EXPECT_FALSE(FileExists(file + ".partial"));
}

TEST_F(BackupTest, ADamagedFileIsRefused) {
  const auto backup = BackUp(0);
  ASSERT_TRUE(backup.ok()) << backup.status();
  const std::string file = dir_.File("backup.tar");
  ASSERT_TRUE(Pack(backup->snapshot, file).ok());
  const std::string text = *ReadFile(file);
  const std::string half = dir_.File("half.tar");
  ASSERT_TRUE(WriteFileAtomically(half, text.substr(0, text.size() / 2)).ok());
  const std::string unpacked = dir_.File("unpacked");
  ASSERT_TRUE(MakeDirectories(unpacked, 0700).ok());
  const absl::Status status = Unpack(half, unpacked);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.message(), HasSubstr("half.tar"));
}

}  // namespace
}  // namespace trainyard::backup
