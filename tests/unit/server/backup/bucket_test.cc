// Tests snapshots that go to a fake store and come back.
#include "server/backup/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/backup/backup.h"
#include "server/backup/manifest.h"
#include "server/backup/restore.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::backup {
namespace {

using ::testing::ElementsAre;
using testing::FakeS3;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kBegin = absl::FromUnixSeconds(1'795'860'000);

class BucketTest : public ::testing::Test {
 protected:
  BucketTest() {
    EXPECT_TRUE(MakeDirectories(state_, 0700).ok());
    store_ = *store::OpenSqliteStore(JoinPath(state_, "trainyard.db"));
    Put("logs/1/1/0.log", "step 1\n");
    Put("logs/1/2/0.log", "step 1\n");
    Put("blobs/ab/weights", std::string(100'000, 'w'));
  }
  void Put(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(state_, name);
    EXPECT_TRUE(MakeDirectories(std::filesystem::path(path).parent_path().string()).ok());
    EXPECT_TRUE(WriteFileAtomically(path, content, 0600).ok());
  }
  // Makes a snapshot, and returns its path.
  std::string Snapshot() {
    now_ += absl::Minutes(1);
    const BackupOptions options = {
        .state_dir = state_, .directory = dir_.File("snapshots"), .now = now_};
    const auto lock = LockSnapshots(options);
    EXPECT_TRUE(lock.ok()) << lock.status();
    const auto made = Backup(options, *lock);
    EXPECT_TRUE(made.ok()) << made.status();
    return made->snapshot;
  }
  absl::StatusOr<PushResult> Pushed(const std::string& snapshot) {
    return Push(bucket_, snapshot, now_);
  }
  std::string Pulled(const std::string& name) {
    const auto folder = Pull(bucket_, dir_.File(name));
    EXPECT_TRUE(folder.ok()) << folder.status();
    return folder.ok() ? *folder : "";
  }

  testing::TempDir dir_;
  const std::string state_ = dir_.File("state");
  std::unique_ptr<store::Store> store_;
  absl::Time now_ = kBegin;
  FakeS3 fake_;
  std::unique_ptr<s3::Client> client_ =
      *s3::Client::Create(fake_.ClientOptions(), *Clock::Real(), *Rng::Real());
  s3::ManifestStore bucket_{*client_, "lab/", s3::Conditions::kHonoured};
};

TEST_F(BucketTest, ASnapshotGoesThereAndIsRestoredFromThere) {
  const std::string snapshot = Snapshot();
  const auto pushed = Pushed(snapshot);
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->version, 1);
  EXPECT_EQ(pushed->sent, 3) << "two logs are alike";
  const std::string folder = Pulled("fetched");
  const auto manifest = ReadManifest(folder);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->files.size(), ReadManifest(snapshot)->files.size());
  for (const auto& [name, entry] : manifest->files) EXPECT_EQ(DamageOf(folder, name, entry), "");
  const auto restored =
      Restore({.snapshot = folder, .state_dir = dir_.File("other"), .replace = false, .now = now_});
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*ReadFile(dir_.File("other/logs/1/2/0.log")), "step 1\n");
  EXPECT_TRUE(store::OpenSqliteStore(dir_.File("other/trainyard.db")).ok());
}

TEST_F(BucketTest, OnlyWhatIsNewIsSent) {
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  Put("logs/1/3/0.log", "step 2\n");
  const std::string snapshot = Snapshot();
  const int before = fake_.CountRequests("lab/blobs/");
  const auto pushed = Pushed(snapshot);
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->version, 2);
  EXPECT_EQ(pushed->sent, 1);
  EXPECT_EQ(pushed->sent_bytes, 7);
  EXPECT_EQ(fake_.CountRequests("lab/blobs/") - before, 2) << "nothing is asked about old files";
  EXPECT_EQ(*ReadFile(JoinPath(Pulled("fetched"), "logs/1/3/0.log")), "step 2\n");
}

TEST_F(BucketTest, APushThatFailsLeavesTheNewestVersion) {
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  Put("logs/1/3/0.log", "step 2\n");
  const std::string snapshot = Snapshot();
  fake_.Inject(FakeS3::Fault::kDenied, 1, "PUT", "blobs/");
  EXPECT_TRUE(absl::IsPermissionDenied(Pushed(snapshot).status()));
  EXPECT_EQ(bucket_.Latest()->number, 1);
  // A damaged file is found before it is sent.
  ASSERT_TRUE(WriteFileAtomically(JoinPath(snapshot, "logs/1/3/0.log"), "step 3\n").ok());
  EXPECT_TRUE(absl::IsDataLoss(Pushed(snapshot).status()));
  EXPECT_EQ(bucket_.Latest()->number, 1);
}

TEST_F(BucketTest, AStoreThatFailsNowAndThenIsUsed) {
  fake_.Inject(FakeS3::Fault::kSlowDown, 2);
  fake_.Inject(FakeS3::Fault::kClose, 1);
  fake_.Inject(FakeS3::Fault::kLoseAnswer, 2, "PUT");
  fake_.Inject(FakeS3::Fault::kCut, 2, "GET", "blobs/");
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  EXPECT_NE(Pulled("fetched"), "");
}

TEST_F(BucketTest, WhatTheBucketHasLostIsNamed) {
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  for (const std::string& key : fake_.Keys("lab/blobs/")) {
    if (fake_.Objects()[key] == "step 1\n") fake_.Remove(key);
  }
  const absl::Status status = Pull(bucket_, dir_.File("fetched")).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("logs/1/"));
  EXPECT_THAT(*ListDirectory(dir_.File("fetched")), ElementsAre("lock"));
}

TEST_F(BucketTest, WhatTheBucketHasLostIsSentAgain) {
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  for (const auto& [key, content] : fake_.Objects()) {
    if (content == "step 1\n") fake_.Remove(key);
    if (content == std::string(100'000, 'w')) fake_.Write(key, "cut");
  }
  const auto pushed = Pushed(Snapshot());
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->sent, 2);
  const std::string folder = Pulled("fetched");
  EXPECT_EQ(*ReadFile(JoinPath(folder, "logs/1/1/0.log")), "step 1\n");
  EXPECT_EQ(*ReadFile(JoinPath(folder, "blobs/ab/weights")), std::string(100'000, 'w'));
}

TEST_F(BucketTest, WhatAPruneMayBeAboutToRemoveIsSentAgain) {
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  ASSERT_EQ(unlink(JoinPath(state_, "blobs/ab/weights").c_str()), 0);
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  // It comes back after most of the time for which files that no version has are spared.
  Put("blobs/ab/weights", std::string(100'000, 'w'));
  now_ += absl::Hours(13);
  const auto pushed = Pushed(Snapshot());
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->sent, 1);
  EXPECT_EQ(pushed->sent_bytes, 100'000);
}

TEST_F(BucketTest, OfAFileThatGrowsOnlyTheEndIsSent) {
  std::string log;
  for (int line = 0; log.size() < 3 * kPieceBytes + 100; ++line) {
    absl::StrAppend(&log, "step ", line, "\n");
  }
  Put("logs/1/1/0.log", log);
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  log += "one more\n";
  Put("logs/1/1/0.log", log);
  const auto pushed = Pushed(Snapshot());
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->sent, 1);
  EXPECT_EQ(pushed->sent_bytes, static_cast<int64_t>(log.size()) % kPieceBytes);
  const std::string folder = Pulled("fetched");
  EXPECT_TRUE(*ReadFile(JoinPath(folder, "logs/1/1/0.log")) == log);
  const auto manifest = ReadManifest(folder);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->files.at("logs/1/1/0.log").pieces, IsEmpty()) << "a folder has whole files";
  for (const auto& [name, entry] : manifest->files) EXPECT_EQ(DamageOf(folder, name, entry), "");
  // A piece that the bucket loses is named by its file.
  const std::string last = log.substr(log.size() / kPieceBytes * kPieceBytes);
  for (const auto& [key, content] : fake_.Objects()) {
    if (content == last) fake_.Remove(key);
  }
  const absl::Status status = Pull(bucket_, dir_.File("again")).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("logs/1/1/0.log"));
}

TEST_F(BucketTest, PiecesOfAnotherFileAreNoFile) {
  const std::string log(kPieceBytes + 1, 'x');
  Put("logs/1/1/0.log", log);
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  for (const auto& [key, content] : fake_.Objects()) {
    if (content == "x") fake_.Write(key, "y");
  }
  EXPECT_TRUE(absl::IsDataLoss(Pull(bucket_, dir_.File("fetched")).status()));
  EXPECT_THAT(*ListDirectory(dir_.File("fetched")), ElementsAre("lock"));
  // A damaged piece of the snapshot is found before any of it is sent.
  const std::string snapshot = Snapshot();
  ASSERT_TRUE(WriteFileAtomically(JoinPath(snapshot, "logs/1/1/0.log"), log + "z").ok());
  EXPECT_TRUE(Pushed(snapshot).ok()) << "the version before has the pieces of what was copied";
  Put("logs/1/1/0.log", log + "more");
  const std::string damaged = Snapshot();
  ASSERT_TRUE(WriteFileAtomically(JoinPath(damaged, "logs/1/1/0.log"), log + "less").ok());
  EXPECT_TRUE(absl::IsDataLoss(Pushed(damaged).status()));
}

TEST_F(BucketTest, ManifestsWithPiecesAreOfTheNewFormatAndChecked) {
  Manifest manifest;
  manifest.files["logs/1"] = {kPieceBytes + 1, 0600, 7,
                              absl::StrCat("sha256:", std::string(64, 'a'))};
  EXPECT_THAT(TextOf(manifest), HasSubstr("\"format\": 1"));
  manifest.files["logs/1"].pieces = {std::string(64, 'b'), std::string(64, 'c')};
  const std::string text = TextOf(manifest);
  EXPECT_THAT(text, HasSubstr("\"format\": 2"));
  const auto read = ParseManifest(text, "it");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->files.at("logs/1").pieces, manifest.files["logs/1"].pieces);
  manifest.files["logs/1"].pieces.pop_back();
  EXPECT_TRUE(absl::IsDataLoss(ParseManifest(TextOf(manifest), "it").status())) << "too few";
  manifest.files["logs/1"].pieces.push_back("../../evil");
  EXPECT_TRUE(absl::IsDataLoss(ParseManifest(TextOf(manifest), "it").status())) << "no hash";
}

TEST_F(BucketTest, WhoPushesAgainAndAgainDoesNotListTheBucket) {
  PushMemory memory;
  ASSERT_TRUE(Push(bucket_, Snapshot(), now_, &memory).ok());
  EXPECT_EQ(memory.committed.size(), 64u);
  const auto push = [&](const std::string& content) {
    Put("logs/1/3/0.log", content);
    const std::string snapshot = Snapshot();
    const int before = fake_.CountRequests("list-type");
    const auto pushed = Push(bucket_, snapshot, now_, &memory);
    EXPECT_TRUE(pushed.ok()) << pushed.status();
    EXPECT_EQ(pushed.ok() ? pushed->sent : 0, 1);
    return fake_.CountRequests("list-type") - before;
  };
  EXPECT_EQ(push("step 2\n"), 0);
  now_ += absl::Hours(1);
  EXPECT_GT(push("step 3\n"), 0) << "now and then it looks";
  EXPECT_EQ(push("step 4\n"), 0);
  EXPECT_EQ(*ReadFile(JoinPath(Pulled("fetched"), "logs/1/3/0.log")), "step 4\n");
}

TEST_F(BucketTest, WhatArrivedBeforeAFailureIsNotSentAgain) {
  PushMemory memory;
  ASSERT_TRUE(Push(bucket_, Snapshot(), now_, &memory).ok());
  Put("blobs/ab/large", std::string(200'000, 'l'));
  fake_.Inject(FakeS3::Fault::kDenied, 1, "PUT", "manifests/");
  EXPECT_FALSE(Push(bucket_, Snapshot(), now_, &memory).ok());
  const auto pushed = Push(bucket_, Snapshot(), now_, &memory);
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(pushed->sent, 0);
}

TEST_F(BucketTest, AVersionThatIsRemovedWhileItIsReadIsFollowedByTheNext) {
  PushMemory memory;
  Put("logs/1/3/0.log", "the first");
  ASSERT_TRUE(Push(bucket_, Snapshot(), now_, &memory).ok());
  const std::string latest = fake_.Objects()["lab/latest"];
  Put("logs/1/3/0.log", "the second");
  ASSERT_TRUE(Push(bucket_, Snapshot(), now_, &memory).ok());
  // A reader has just seen the first version, of which a file is gone meanwhile.
  for (const auto& [key, content] : fake_.Objects()) {
    if (content == "the first") fake_.Remove(key);
  }
  const std::string newest = fake_.Objects()["lab/latest"];
  fake_.Write("lab/latest", latest);
  std::thread moves([&] {
    EXPECT_TRUE(testing::WaitUntil([&] { return fake_.CountRequests("GET lab/blobs/") > 0; }));
    fake_.Write("lab/latest", newest);
    fake_.Wake();
  });
  fake_.Inject(FakeS3::Fault::kHang, 1, "GET", "lab/blobs/");
  const std::string folder = Pulled("fetched");
  moves.join();
  EXPECT_EQ(*ReadFile(JoinPath(folder, "logs/1/3/0.log")), "the second");
}

TEST_F(BucketTest, AManifestThatLeadsOutOfItsFolderIsRefused) {
  const std::string hash(64, 'a');
  ASSERT_TRUE(bucket_
                  .Commit(absl::StrCat(R"({"format":1,"files":{"../evil":{"size":1,"mode":384,)",
                                       R"("mtime_ns":0,"sha256":"sha256:)", hash, R"("}}})"),
                          *bucket_.Latest())
                  .ok());
  EXPECT_TRUE(absl::IsDataLoss(Pull(bucket_, dir_.File("fetched")).status()));
}

TEST_F(BucketTest, OneFetchWorksInAFolderAtATime) {
  ASSERT_TRUE(Pushed(Snapshot()).ok());
  ASSERT_TRUE(MakeDirectories(dir_.File("fetched/20261128T100100Z.fetching"), 0700).ok());
  {
    const auto lock = DirectoryLock::Acquire(dir_.File("fetched"));
    EXPECT_EQ(ErrorReason(Pull(bucket_, dir_.File("fetched")).status()), "STATE_LOCKED");
  }
  EXPECT_TRUE(FileExists(dir_.File("fetched/20261128T100100Z.fetching")))
      << "the folder of another fetch is not touched";
  EXPECT_NE(Pulled("fetched"), "");
}

TEST_F(BucketTest, AnEmptyBucketHasNoBackup) {
  EXPECT_TRUE(absl::IsNotFound(Pull(bucket_, dir_.File("fetched")).status()));
}

TEST_F(BucketTest, AFolderOfSomethingElseIsNotWrittenTo) {
  ASSERT_TRUE(bucket_.Commit("no manifest of a snapshot", *bucket_.Latest()).ok());
  EXPECT_TRUE(absl::IsDataLoss(Pushed(Snapshot()).status()));
  EXPECT_EQ(bucket_.Latest()->number, 1);
}

TEST_F(BucketTest, PruneKeepsTheNewestVersions) {
  for (int i = 0; i < 3; ++i) {
    Put("logs/1/4/0.log", absl::StrCat("version ", i));
    ASSERT_TRUE(Pushed(Snapshot()).ok());
  }
  // All objects of the fake are of 28 November 2026.
  const auto removed = PruneBucket(bucket_, 1, absl::FromUnixSeconds(1'795'860'000 + 90'000));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_GE(*removed, 2);
  EXPECT_THAT(fake_.Keys("lab/manifests/"), SizeIs(1));
  EXPECT_EQ(*ReadFile(JoinPath(Pulled("fetched"), "logs/1/4/0.log")), "version 2");
}

}  // namespace
}  // namespace trainyard::backup
