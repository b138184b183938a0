// Tests that a bucket follows a state directory.
#include "server/backup/continuous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::backup {
namespace {

using testing::FakeS3;
using ::testing::SizeIs;

class ContinuousTest : public ::testing::Test {
 protected:
  ContinuousTest() {
    Put("logs/1/1/0.log", "step 1\n");
    Put("blobs/ab/weights", std::string(100'000, 'w'));
  }
  void Put(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(state_, name);
    EXPECT_TRUE(MakeDirectories(std::filesystem::path(path).parent_path().string()).ok());
    EXPECT_TRUE(WriteFileAtomically(path, content, 0600).ok());
  }
  absl::StatusOr<Continuous::Round> Turn() {
    clock_.Advance(absl::Seconds(5));
    return rounds_.Turn(*lock_);
  }
  std::string Pulled(const std::string& name, const std::string& file) {
    const auto folder = Pull(bucket_, dir_.File(name));
    EXPECT_TRUE(folder.ok()) << folder.status();
    return folder.ok() ? *ReadFile(JoinPath(*folder, file)) : "";
  }
  std::vector<std::string> Local() const { return *ListSnapshots(dir_.File("local")); }

  testing::TempDir dir_;
  const std::string state_ = dir_.File("state");
  std::unique_ptr<store::Store> store_ = [this] {
    EXPECT_TRUE(MakeDirectories(state_, 0700).ok());
    return *store::OpenSqliteStore(JoinPath(state_, "trainyard.db"));
  }();
  testing::ManualClock clock_;
  FakeS3 fake_;
  std::unique_ptr<s3::Client> client_ =
      *s3::Client::Create(fake_.ClientOptions(), *Clock::Real(), *Rng::Real());
  s3::ManifestStore bucket_{*client_, "lab/", s3::Conditions::kHonoured};
  const BackupOptions options_ = {
      .state_dir = state_, .directory = dir_.File("local"), .now = clock_.Now()};
  const absl::StatusOr<DirectoryLock> lock_ = LockSnapshots(options_);
  ContinuousOptions Options() const {
    return {.backup = options_, .place = "s3://lab/now", .versions = 3};
  }
  Continuous rounds_{Options(), bucket_, clock_};
};

TEST_F(ContinuousTest, AVersionFollowsEachChangeAndNothingElse) {
  auto round = Turn();
  ASSERT_TRUE(round.ok()) << round.status();
  ASSERT_TRUE(round->pushed.has_value());
  EXPECT_EQ(round->pushed->version, 1);
  EXPECT_EQ(round->behind, absl::Seconds(5));
  EXPECT_TRUE(FileExists(JoinPath(state_, "backups/continuous"))) << "for the metrics";
  round = Turn();
  ASSERT_TRUE(round.ok()) << round.status();
  EXPECT_FALSE(round->pushed.has_value()) << "nothing has changed";
  Put("logs/1/1/0.log", "step 1\nstep 2\n");
  round = Turn();
  ASSERT_TRUE(round.ok() && round->pushed.has_value()) << round.status();
  EXPECT_EQ(round->pushed->version, 2);
  EXPECT_EQ(round->pushed->sent, 1);
  EXPECT_EQ(Pulled("fetched", "logs/1/1/0.log"), "step 1\nstep 2\n");
  EXPECT_THAT(Local(), SizeIs(1));
}

TEST_F(ContinuousTest, ACommitOfTheDatabaseIsAChange) {
  ASSERT_TRUE(Turn().ok());
  core::Delta delta;
  delta.revision = 1;
  delta.next_job = 18;
  ASSERT_TRUE(store_->Commit(delta).ok());
  auto round = Turn();
  ASSERT_TRUE(round.ok() && round->pushed.has_value()) << round.status();
  const auto folder = Pull(bucket_, dir_.File("fetched"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(ReadManifest(*folder)->revision, 1);
  const auto copy = store::OpenSqliteStore(JoinPath(*folder, "trainyard.db"));
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ((*copy)->Load()->next_job, 18);
}

TEST_F(ContinuousTest, ADatabaseThatRestsIsNotCopiedAgain) {
  ASSERT_TRUE(Turn().ok());
  // A file system tells no times apart that are too near, so what was written just now is copied.
  for (const char* suffix : {"", "-wal"}) {
    const std::string path = JoinPath(state_, absl::StrCat("trainyard.db", suffix));
    if (!FileExists(path)) continue;
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1));
  }
  const auto inode = [&] {
    struct stat info {};
    EXPECT_EQ(
        stat(JoinPath(JoinPath(dir_.File("local"), Local().back()), "trainyard.db").c_str(), &info),
        0);
    return info.st_ino;
  };
  ASSERT_TRUE(Turn().ok());
  const auto copied = inode();
  ASSERT_TRUE(Turn().ok());
  EXPECT_EQ(inode(), copied);
  core::Delta delta;
  delta.revision = 1;
  ASSERT_TRUE(store_->Commit(delta).ok());
  const auto round = Turn();
  ASSERT_TRUE(round.ok()) << round.status();
  EXPECT_NE(inode(), copied);
  EXPECT_TRUE(round->pushed.has_value());
}

TEST_F(ContinuousTest, ARoundThatFailsIsMadeUpFor) {
  ASSERT_TRUE(Turn().ok());
  Put("logs/1/1/0.log", "step 2\n");
  fake_.Inject(FakeS3::Fault::kDenied, 1, "PUT", "blobs/");
  EXPECT_TRUE(absl::IsPermissionDenied(Turn().status()));
  const auto round = Turn();
  ASSERT_TRUE(round.ok() && round->pushed.has_value()) << round.status();
  EXPECT_EQ(round->behind, absl::Seconds(10)) << "since the last one that has succeeded";
  EXPECT_EQ(Pulled("fetched", "logs/1/1/0.log"), "step 2\n");
}

TEST_F(ContinuousTest, CheckpointsAreSharedWithTheStateDirectory) {
  ASSERT_TRUE(Turn().ok());
  struct stat info {};
  ASSERT_EQ(stat(JoinPath(state_, "blobs/ab/weights").c_str(), &info), 0);
  EXPECT_EQ(info.st_nlink, 2);
  ASSERT_EQ(stat(JoinPath(state_, "logs/1/1/0.log").c_str(), &info), 0);
  EXPECT_EQ(info.st_nlink, 1) << "a log grows";
}

TEST_F(ContinuousTest, OldVersionsGo) {
  for (int i = 0; i < 9; ++i) {
    Put("logs/1/1/0.log", absl::StrCat("version ", i));
    ASSERT_TRUE(Turn().ok());
  }
  EXPECT_THAT(fake_.Keys("lab/manifests/"), SizeIs(9)) << "they go once an hour";
  clock_.Advance(absl::Hours(1));
  ASSERT_TRUE(Turn().ok());
  EXPECT_THAT(fake_.Keys("lab/manifests/"), SizeIs(3));
  EXPECT_EQ(Pulled("fetched", "logs/1/1/0.log"), "version 8");
}

TEST_F(ContinuousTest, NoVersionGoesWhileAFileIsLost) {
  const std::string hash = ContentHash("weights");
  auto db =
      *store::Database::Open(JoinPath(state_, "trainyard.db"), store::Database::Mode::kDurable);
  for (int i = 0; i < 5; ++i) {
    Put("logs/1/1/0.log", absl::StrCat("version ", i));
    ASSERT_TRUE(Turn().ok());
  }
  ASSERT_TRUE(
      db->Execute(absl::StrCat("PRAGMA foreign_keys = OFF; INSERT INTO checkpoint_files (job, "
                               "step, name, size, hash) VALUES (1, 2, 'model', 7, '",
                               hash, "');"))
          .ok());
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Hours(1));
    const auto round = Turn();
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_THAT(round->lost, SizeIs(1));
  }
  EXPECT_GE(fake_.Keys("lab/manifests/").size(), 5u);
  EXPECT_THAT(Local(), SizeIs(1)) << "here they would pile up";
}

TEST_F(ContinuousTest, VersionsOfSomebodyElseEndIt) {
  ASSERT_TRUE(Turn().ok());
  // It knows its own versions again after a restart.
  Put("logs/1/1/0.log", "step 2\n");
  Continuous again(Options(), bucket_, clock_);
  const auto round = again.Turn(*lock_);
  ASSERT_TRUE(round.ok()) << round.status();
  // A server that was restored elsewhere takes the folder over.
  const BackupOptions other = {
      .state_dir = state_, .directory = dir_.File("other"), .now = clock_.Now()};
  const auto lock = LockSnapshots(other);
  ASSERT_TRUE(lock.ok()) << lock.status();
  Put("logs/1/1/0.log", "step 3\n");
  Continuous elsewhere({.backup = other, .place = "s3://lab/now"}, bucket_, clock_);
  ASSERT_TRUE(elsewhere.Turn(*lock).ok());
  Put("logs/1/1/0.log", "step 4\n");
  EXPECT_EQ(ErrorReason(again.Turn(*lock_).status()), kOtherWriter);
  Continuous restarted(Options(), bucket_, clock_);
  EXPECT_EQ(ErrorReason(restarted.Turn(*lock_).status()), kOtherWriter) << "also after a restart";
  EXPECT_EQ(Pulled("fetched", "logs/1/1/0.log"), "step 3\n");
}

TEST_F(ContinuousTest, ItTakesNoFolderOfOtherBackups) {
  BackupOptions hourly = options_;
  for (int i = 0; i < 3; ++i) {
    hourly.now += absl::Hours(1);
    ASSERT_TRUE(Backup(hourly, *lock_).ok());
  }
  const auto refused = Turn();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(Local(), SizeIs(3));

  // Neither kind of backup takes a folder of the bucket that the other kind has.
  const std::string snapshot = JoinPath(dir_.File("local"), Local().back());
  ASSERT_TRUE(Push(bucket_, snapshot, clock_.Now()).ok());
  PushMemory memory;
  EXPECT_EQ(ErrorReason(Push(bucket_, snapshot, clock_.Now(), &memory).status()), kOtherWriter);
  s3::ManifestStore other(*client_, "other/", s3::Conditions::kHonoured);
  ASSERT_TRUE(Push(other, snapshot, clock_.Now(), &memory).ok());
  EXPECT_EQ(ErrorReason(Push(other, snapshot, clock_.Now()).status()), kOtherWriter);
}

TEST_F(ContinuousTest, OldVersionsThatCannotBeRemovedAreNoFailureOfTheBackup) {
  for (int i = 0; i < 5; ++i) {
    Put("logs/1/1/0.log", absl::StrCat("version ", i));
    ASSERT_TRUE(Turn().ok());
  }
  clock_.Advance(absl::Hours(1));
  fake_.Inject(FakeS3::Fault::kDenied, 1, "DELETE");
  Put("logs/1/1/0.log", "the last");
  const auto round = Turn();
  ASSERT_TRUE(round.ok()) << round.status();
  EXPECT_TRUE(round->pushed.has_value());
  EXPECT_TRUE(absl::IsPermissionDenied(round->pruned)) << round->pruned;
}

TEST(PauseAfter, RoundsTakeAtMostHalfOfTheTime) {
  EXPECT_EQ(PauseAfter(absl::Seconds(1), absl::Seconds(5)), absl::Seconds(4));
  EXPECT_EQ(PauseAfter(absl::Seconds(4), absl::Seconds(5)), absl::Seconds(4));
  EXPECT_EQ(PauseAfter(absl::Seconds(9), absl::Seconds(5)), absl::Seconds(9));
}

}  // namespace
}  // namespace trainyard::backup
