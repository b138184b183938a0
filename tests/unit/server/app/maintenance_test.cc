// Tests the words that work on a state directory as their command line runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "server/bucket_flags.h"
#include "server/flags.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/sqlite_store.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeS3;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uid_t kNobody = 65'534;
constexpr char kPlace[] = "s3://lab-bucket/server";

class MaintenanceTest : public ::testing::Test {
 protected:
  MaintenanceTest() {
    EXPECT_TRUE(MakeDirectories(JoinPath(state_, "logs/1/1"), 0700).ok());
    EXPECT_TRUE(store::OpenSqliteStore(JoinPath(state_, "trainyard.db")).ok());
    EXPECT_TRUE(WriteFileAtomically(JoinPath(state_, "logs/1/1/0.log"), "step 1\n").ok());
    const s3::ClientOptions options = fake_.ClientOptions();
    setenv("AWS_ACCESS_KEY_ID", options.credentials.access_key_id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", options.credentials.secret_access_key.c_str(), 1);
    setenv("AWS_ENDPOINT_URL_S3", options.endpoint.c_str(), 1);
  }

  // Returns the exit code.
  static int Run(std::vector<std::string> words, const std::string& state_dir) {
    words.insert(words.begin(), {"trainyard-server", "--state_dir", state_dir});
    std::vector<char*> argv;
    argv.reserve(words.size());
    for (std::string& word : words) argv.push_back(word.data());
    const ParsedFlags flags = ParseFlags(static_cast<int>(argv.size()), argv.data(), "/default");
    return flags.task ? flags.task() : 2;
  }
  int Run(const std::vector<std::string>& words) { return Run(words, state_); }
  // Returns what a run prints, which has to succeed.
  std::string Out(const std::vector<std::string>& words) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(Run(words), 0);
    return ::testing::internal::GetCapturedStdout();
  }
  // Returns what a run complains of, which has to fail.
  std::string Err(const std::vector<std::string>& words) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Run(words), 1);
    return ::testing::internal::GetCapturedStderr();
  }

  FakeS3 fake_;
  testing::TempDir dir_;
  const std::string state_ = dir_.File("state");
  const std::string snapshots_ = dir_.File("snapshots");
};

TEST_F(MaintenanceTest, ASnapshotGoesThroughABucketIntoANewDirectory) {
  EXPECT_THAT(Out({"backup", snapshots_, "--bucket", kPlace, "--keep", "2"}),
              AllOf(HasSubstr("2 files copied"), HasSubstr("version 1, 2 files sent")));
  EXPECT_TRUE(FileExists(JoinPath(state_, "backups/snapshot"))) << "for the metrics of the server";
  const std::string fetched = Out({"fetch", kPlace, dir_.File("fetched")});
  EXPECT_THAT(fetched, HasSubstr(" is whole"));
  const std::string snapshot = fetched.substr(0, fetched.find(" is whole"));
  EXPECT_THAT(Out({"check", snapshot}), HasSubstr("No damage was found."));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Run({"restore", snapshot}, dir_.File("new/state")), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("start the server"));
  EXPECT_EQ(*ReadFile(dir_.File("new/state/logs/1/1/0.log")), "step 1\n");
  EXPECT_THAT(*ListDirectory(dir_.File("new")), ElementsAre("state"));
}

TEST_F(MaintenanceTest, TheStoreIsThatOfTheServerUnlessSomebodySaysOtherwise) {
  const std::string here = fake_.ClientOptions().endpoint;
  const std::string nowhere = "http://127.0.0.1:1";
  // Each run makes a snapshot and a version of its own.
  const auto backup = [&](const std::string& of_server, const std::string& of_word) {
    std::vector<std::string> words = {"--s3_endpoint", of_server,  "backup",
                                      snapshots_,      "--bucket", kPlace};
    if (!of_word.empty()) words.insert(words.end(), {"--s3_endpoint", of_word});
    return Run(words);
  };
  EXPECT_EQ(backup(nowhere, ""), 0) << "the environment says where";
  EXPECT_EQ(Run({"--s3_endpoint", nowhere, "--s3_ca", "/no/such/file", "backup", snapshots_,
                 "--bucket", kPlace}),
            0)
      << "the authorities are those of the server's store";
  unsetenv("AWS_ENDPOINT_URL_S3");
  EXPECT_EQ(backup(here, ""), 0) << "server.yaml says where";
  EXPECT_EQ(backup(nowhere, here), 0) << "the word says where";
  const std::string fetched = Out({"--s3_endpoint", here, "fetch", kPlace, dir_.File("fetched")});
  EXPECT_THAT(fetched, HasSubstr(" is whole"));
}

TEST_F(MaintenanceTest, AFileIsMadeAndNothingElseStays) {
  const std::string file = dir_.File("lab.tar");
  EXPECT_THAT(Out({"backup", file}), HasSubstr("lab.tar: "));
  EXPECT_THAT(*ListDirectory(dir_.path()), ElementsAre("lab.tar", "state"));
  EXPECT_THAT(Err({"restore", file}), HasSubstr("is not empty"));
  EXPECT_THAT(Out({"restore", file, "--replace"}), HasSubstr("The old one is in "));
  EXPECT_THAT(Err({"backup", file, "--bucket", kPlace}), HasSubstr("--bucket copies a snapshot"));
  EXPECT_THAT(Err({"backup", file, "--keep", "1"}), HasSubstr("--keep is for a folder"));
}

TEST_F(MaintenanceTest, ASecondBackupToAFileLeavesTheFirstOneAlone) {
  const std::string folder = dir_.File("lab.tar.snapshot");
  const std::string half = JoinPath(folder, "20261128T100000Z.partial/logs");
  ASSERT_TRUE(MakeDirectories(half, 0700).ok());
  {
    const auto lock = DirectoryLock::Acquire(folder);
    EXPECT_THAT(Err({"backup", dir_.File("lab.tar")}), HasSubstr("is in use by process"));
    EXPECT_TRUE(FileExists(half));
    EXPECT_FALSE(FileExists(dir_.File("lab.tar")));
  }
  EXPECT_EQ(Run({"backup", dir_.File("lab.tar")}), 0);
  EXPECT_THAT(*ListDirectory(dir_.path()), ElementsAre("lab.tar", "state"));
}

TEST_F(MaintenanceTest, ASnapshotStaysWhileItIsSent) {
  fake_.Inject(FakeS3::Fault::kHang, 1, "PUT", "blobs/");
  int exit_code = -1;
  std::thread first([&] { exit_code = Run({"backup", snapshots_, "--bucket", kPlace}); });
  EXPECT_TRUE(testing::WaitUntil([&] { return fake_.CountRequests("PUT server/blobs/") > 0; }));
  EXPECT_EQ(Run({"backup", snapshots_, "--keep", "1"}), 1);
  fake_.Wake();
  first.join();
  EXPECT_EQ(exit_code, 0);
  EXPECT_THAT(fake_.Keys("server/blobs/"), SizeIs(2));
}

TEST_F(MaintenanceTest, KeysThatAreReplacedAreReadAgain) {
  const s3::Credentials keys = fake_.ClientOptions().credentials;
  const std::string file = dir_.File("keys");
  const auto write = [&file](const std::string& id, const std::string& secret) {
    EXPECT_TRUE(WriteFileAtomically(file, absl::StrCat("[default]\naws_access_key_id = ", id,
                                                       "\naws_secret_access_key = ", secret, "\n"))
                    .ok());
  };
  unsetenv("AWS_ACCESS_KEY_ID");
  unsetenv("AWS_SECRET_ACCESS_KEY");
  setenv("AWS_SHARED_CREDENTIALS_FILE", file.c_str(), 1);
  write(keys.access_key_id, "the old one");
  BucketFlags flags;
  flags.place = kPlace;
  const auto bucket = OpenBucket(flags, /*is_for_writing=*/false);
  ASSERT_TRUE(bucket.ok()) << bucket.status();
  EXPECT_TRUE(absl::IsPermissionDenied(bucket->store->Latest().status()));
  write(keys.access_key_id, keys.secret_access_key);
  EXPECT_TRUE(bucket->store->Latest().ok());
  ASSERT_EQ(unlink(file.c_str()), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(bucket->store->Latest().status()))
      << "the old keys are left";
  unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}

TEST_F(MaintenanceTest, AHostThatComesUpRestoresFromTheBucket) {
  const std::string other = dir_.File("other/state");
  const auto restore = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"restore", kPlace};
    words.insert(words.end(), more.begin(), more.end());
    ::testing::internal::CaptureStdout();
    const int exit_code = Run(words, other);
    return std::pair(exit_code, ::testing::internal::GetCapturedStdout());
  };
  EXPECT_EQ(restore({}).first, 1) << "there is no backup";
  auto [exit_code, out] = restore({"--if_lost"});
  EXPECT_EQ(exit_code, 0);
  EXPECT_THAT(out, HasSubstr("has no backup yet, so the server begins anew"));
  EXPECT_FALSE(FileExists(JoinPath(other, "trainyard.db")));
  ASSERT_EQ(Run({"backup", snapshots_, "--bucket", kPlace}), 0);
  fake_.Inject(FakeS3::Fault::kDenied, 1, "GET");
  EXPECT_EQ(restore({"--if_lost"}).first, 1) << "a bucket that cannot be read is not an empty one";
  std::tie(exit_code, out) = restore({"--if_lost"});
  EXPECT_EQ(exit_code, 0) << out;
  EXPECT_THAT(out, AllOf(HasSubstr(" ago."), HasSubstr("start the server")));
  EXPECT_EQ(*ReadFile(JoinPath(other, "logs/1/1/0.log")), "step 1\n");
  EXPECT_THAT(*ListDirectory(dir_.File("other")), ElementsAre("state")) << "no copy stays";
  // A restore that was killed has left what it had fetched, with all keys.
  EXPECT_TRUE(MakeDirectories(dir_.File("other/state.fetched/20261129T100000Z"), 0700).ok());
  ASSERT_EQ(chmod(dir_.File("other/state.fetched").c_str(), 0700), 0);
  std::tie(exit_code, out) = restore({"--if_lost"});
  EXPECT_EQ(exit_code, 0);
  EXPECT_THAT(out, HasSubstr("is there, so nothing is restored"));
  EXPECT_THAT(*ListDirectory(dir_.File("other")), ElementsAre("state"));
  const int before = fake_.CountRequests("GET server/blobs/");
  EXPECT_EQ(restore({}).first, 1) << "it is not empty";
  EXPECT_EQ(fake_.CountRequests("GET server/blobs/"), before) << "which is seen before the fetch";
}

TEST_F(MaintenanceTest, ABackupThatGoesOnEndsBySignal) {
  const auto versions = [&] { return fake_.Keys("server/manifests/").size(); };
  ::testing::internal::CaptureStdout();
  int exit_code = -1;
  std::thread backup([&] {
    exit_code = Run({"backup", snapshots_, "--every", "100ms", "--bucket", kPlace});
  });
  EXPECT_TRUE(testing::WaitUntil([&] { return versions() == 1; }));
  EXPECT_TRUE(WriteFileAtomically(JoinPath(state_, "logs/1/1/0.log"), "step 2\n").ok());
  EXPECT_TRUE(testing::WaitUntil([&] { return versions() == 2; }));
  pthread_kill(backup.native_handle(), SIGTERM);
  backup.join();
  EXPECT_EQ(exit_code, 0);
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(out, HasSubstr(absl::StrCat(kPlace, ": version 1, ")));
  EXPECT_THAT(out, AllOf(HasSubstr("2 versions, "), HasSubstr(" behind\n")));
}

TEST_F(MaintenanceTest, ABackupThatGoesOnSendsTheLastCommitsOfAServerThatEndsToo) {
  const std::string ready = JoinPath(state_, "ready");
  EXPECT_TRUE(WriteFileAtomically(ready, "").ok());
  ::testing::internal::CaptureStdout();
  int exit_code = -1;
  std::thread backup([&] {
    exit_code = Run({"backup", snapshots_, "--every", "1h", "--bucket", kPlace});
  });
  EXPECT_TRUE(testing::WaitUntil([&] { return fake_.Keys("server/manifests/").size() == 1; }));
  pthread_kill(backup.native_handle(), SIGTERM);
  EXPECT_TRUE(WriteFileAtomically(JoinPath(state_, "logs/1/1/0.log"), "the last\n").ok());
  EXPECT_EQ(unlink(ready.c_str()), 0);
  backup.join();
  EXPECT_EQ(exit_code, 0);
  EXPECT_EQ(Run({"restore", kPlace}, dir_.File("other")), 0);
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(*ReadFile(dir_.File("other/logs/1/1/0.log")), "the last\n");
}

TEST_F(MaintenanceTest, ABackupThatGoesOnWaitsForTheFirstStartOfTheServer) {
  const std::string other = dir_.File("other");
  ::testing::internal::CaptureStdout();
  int exit_code = -1;
  std::thread backup([&] {
    exit_code = Run({"backup", snapshots_, "--every", "100ms", "--bucket", kPlace}, other);
  });
  EXPECT_TRUE(MakeDirectories(other, 0700).ok());
  EXPECT_TRUE(store::OpenSqliteStore(JoinPath(other, "trainyard.db")).ok());
  EXPECT_TRUE(testing::WaitUntil([&] { return fake_.Keys("server/manifests/").size() == 1; }));
  pthread_kill(backup.native_handle(), SIGTERM);
  backup.join();
  EXPECT_EQ(exit_code, 0);
  ::testing::internal::GetCapturedStdout();
}

TEST_F(MaintenanceTest, ABackupThatGoesOnSaysThatTheBucketIsAway) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  std::thread backup([&] { Run({"backup", snapshots_, "--every", "100ms", "--bucket", kPlace}); });
  EXPECT_TRUE(testing::WaitUntil([&] { return fake_.Keys("server/manifests/").size() == 1; }));
  fake_.Inject(FakeS3::Fault::kDenied, 1, "PUT", "blobs/");
  EXPECT_TRUE(WriteFileAtomically(JoinPath(state_, "logs/1/1/0.log"), "step 2\n").ok());
  EXPECT_TRUE(testing::WaitUntil([&] { return fake_.Keys("server/manifests/").size() == 2; }));
  pthread_kill(backup.native_handle(), SIGTERM);
  backup.join();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(absl::StrCat(kPlace, " gets nothing new, and this is tried again: ")));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr(absl::StrCat(kPlace, " is up to date again, after ")));
}

TEST_F(MaintenanceTest, ABackupThatGoesOnNeedsABucketAndATime) {
  EXPECT_THAT(Err({"backup", snapshots_, "--every", "5s"}), HasSubstr("--bucket s3://"));
  EXPECT_THAT(Err({"backup", dir_.File("lab.tar"), "--every", "5s", "--bucket", kPlace}),
              HasSubstr("a folder for the newest snapshot"));
  for (const char* every : {"5", "0s", "2h", "soon"}) {
    EXPECT_THAT(Err({"backup", snapshots_, "--every", every, "--bucket", kPlace}),
                HasSubstr("expected a time from 100ms to 1h"));
  }
  fake_.Inject(FakeS3::Fault::kDenied, 100);
  EXPECT_EQ(Run({"backup", snapshots_, "--every", "5s", "--bucket", kPlace}), 1)
      << "what never worked is a mistake";
}

TEST_F(MaintenanceTest, ALostFileIsToldAndTheRestIsKept) {
  const std::string hash = ContentHash("weights");
  auto db =
      *store::Database::Open(JoinPath(state_, "trainyard.db"), store::Database::Mode::kDurable);
  ASSERT_TRUE(db->Execute(absl::StrCat(
                              "PRAGMA foreign_keys = OFF; INSERT INTO checkpoint_files (job, step, "
                              "name, size, hash) VALUES (1, 10, 'model', 7, '",
                              hash, "');"))
                  .ok());
  EXPECT_THAT(Err({"backup", snapshots_}),
              AllOf(HasSubstr("has lost 1 file of checkpoints"), HasSubstr(*HashDigits(hash))));
  EXPECT_THAT(*ListDirectory(snapshots_), SizeIs(2)) << "the snapshot, and the lock";
  EXPECT_THAT(Err({"backup", dir_.File("lab.tar")}), HasSubstr("has lost 1 file"));
  EXPECT_TRUE(FileExists(dir_.File("lab.tar")));
}

// Folders above the one of the snapshots must let the owner of the state directory through.
TEST_F(MaintenanceTest, RootMakesTheFoldersForTheOwnerOfTheState) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(chmod(dir_.path().c_str(), 0755), 0);
  for (const char* name : {"", "logs", "logs/1", "logs/1/1", "logs/1/1/0.log", "trainyard.db",
                           "trainyard.db-committed"}) {
    ASSERT_EQ(chown(JoinPath(state_, name).c_str(), kNobody, kNobody), 0) << name;
  }
  const std::string folder = dir_.File("srv/backup/trainyard");
  ASSERT_EQ(Run({"backup", folder}), 0);
  struct stat info {};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kNobody);
  EXPECT_EQ(info.st_mode & 0777, mode_t{0700});
  ASSERT_EQ(stat(dir_.File("srv/backup").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, uid_t{0});
  EXPECT_EQ(info.st_mode & 0777, mode_t{0755});
  ASSERT_EQ(Run({"backup", dir_.File("media/lab.tar")}), 0);
  EXPECT_THAT(*ListDirectory(dir_.File("media")), ElementsAre("lab.tar"));
  EXPECT_EQ(geteuid(), uid_t{0}) << "the way back is gone";

  // A folder that root has fetched belongs to the owner of the snapshots, who must be able to
  // remove it.
  ASSERT_EQ(Run({"backup", folder, "--bucket", kPlace}), 0);
  const std::string fetched = dir_.File("srv/fetched");
  ASSERT_TRUE(MakeDirectories(fetched, 0700).ok());
  ASSERT_EQ(chown(fetched.c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(Run({"fetch", kPlace, fetched}), 0);
  const std::vector<std::string> names = *ListDirectory(fetched);
  EXPECT_THAT(names, SizeIs(2));
  for (const std::string& name : names) {
    ASSERT_EQ(stat(JoinPath(fetched, name).c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, kNobody) << name;
  }
}

}  // namespace
}  // namespace trainyard
