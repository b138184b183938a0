// Tests backup, restore and check on the files of a small state directory.
#include "server/backup/backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "server/backup/check.h"
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
    const std::string hash = ContentHash("weights");
    blob_ = absl::StrCat("blobs/", HashDigits(hash)->substr(0, 2), "/", *HashDigits(hash));
    Put(blob_, "weights");
    auto db =
        store::Database::Open(JoinPath(state_, "trainyard.db"), store::Database::Mode::kDurable);
    EXPECT_TRUE((*db)
                    ->Execute(absl::StrCat(
                        "PRAGMA foreign_keys = OFF;"
                        "INSERT INTO checkpoints (job, step, attempt, create_us, is_evaluated, "
                        "loss, accuracy) "
                        "VALUES (1, 10, 1, 0, 0, 0.0, 0.0);"
                        "INSERT INTO checkpoint_files (job, step, name, size, hash) VALUES (1, 10, "
                        "'model', 7, '",
                        hash, "');"))
                    .ok());
  }

  void Put(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(state_, name);
    EXPECT_TRUE(MakeDirectories(path.substr(0, path.rfind('/')), 0700).ok());
    EXPECT_TRUE(WriteFileAtomically(path, content, 0600).ok());
  }
  absl::StatusOr<BackupResult> BackUp(int second, int keep = 0) {
    return Backup({state_, snapshots_, keep, kNow + absl::Seconds(second)});
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
