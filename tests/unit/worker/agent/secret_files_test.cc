// Tests the files with the secrets of attempts.
#include "worker/agent/secret_files.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/agent/act_as.h"
#include "worker/agent/sweeper.h"
#include "worker/run_dir/secrets.h"

namespace trainyard::agent {
namespace {

constexpr AttemptId kAttempt = {JobId{3}, 1};

class SecretFilesTest : public ::testing::Test {
 protected:
  SecretFilesTest() : dir_(run_dir::AttemptDirectory(state_.path(), 3, 1)) {
    EXPECT_TRUE(MakeDirectories(dir_.root()).ok());
  }

  static void ExpectPrivate(const std::string& path, mode_t mode) {
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0) << path;
    EXPECT_EQ(info.st_mode & 07777, mode) << path;
    EXPECT_EQ(info.st_uid, geteuid());
  }

  testing::TempDir state_;
  run_dir::RunDir dir_;
  Sweeper sweeper_{state_.File("removed"), absl::Hours(1), *Clock::Real()};
};

// Returns what a user gets who does this: 0 for success, or errno.
int ErrnoAs(uid_t uid, const std::function<bool()>& action) {
  const ActAs as({.is_self = false, .uid = uid, .gid = uid});
  return action() ? 0 : errno;
}

TEST_F(SecretFilesTest, ItsOwnerReadsThemInMemoryAndAddsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, whose jobs belong to others";
  const SecretFiles files(state_.path(), sweeper_, {"/dev/shm"});
  if (files.base().empty()) GTEST_SKIP() << "/dev/shm is no file system in memory here";
  constexpr uid_t kOwner = 12'345;
  const FileOwner owner = {.is_self = false, .uid = kOwner, .gid = kOwner};
  ASSERT_EQ(chmod(state_.path().c_str(), 0711), 0);
  ASSERT_EQ(chown(dir_.root().c_str(), kOwner, kOwner), 0);
  ASSERT_TRUE(files.Write(dir_, kAttempt, owner, {{"token", "v1"}}).ok());
  const std::string folder = run_dir::SecretsFolder(dir_);
  ASSERT_TRUE(absl::StartsWith(folder, files.base())) << folder;
  const std::string token = folder + "/token";
  const auto opens = [](const std::string& path, int flags) {
    return [path, flags] { return UniqueFd(open(path.c_str(), flags, 0600)).valid(); };
  };
  EXPECT_EQ(ErrnoAs(kOwner, opens(token, O_RDONLY)), 0);
  EXPECT_EQ(ErrnoAs(kOwner, opens(folder, O_RDONLY | O_DIRECTORY)), 0) << "it may list them";
  EXPECT_EQ(ErrnoAs(kOwner, opens(token, O_WRONLY)), EACCES);
  EXPECT_EQ(ErrnoAs(kOwner, opens(folder + "/more", O_WRONLY | O_CREAT)), EACCES);
  EXPECT_EQ(ErrnoAs(kOwner, [&] { return chmod(token.c_str(), 0666) == 0; }), EPERM);
  EXPECT_EQ(ErrnoAs(kOwner, [&] { return chmod(folder.c_str(), 0777) == 0; }), EPERM);
  EXPECT_EQ(ErrnoAs(kOwner + 1, opens(token, O_RDONLY)), EACCES);
  files.Remove(dir_, kAttempt, owner);
  EXPECT_FALSE(FileExists(folder));
}

TEST_F(SecretFilesTest, AFolderThatItsOwnerPutsThereIsLeftToTheSweeper) {
  const SecretFiles files(state_.path(), sweeper_, {"/dev/shm"});
  const std::string path = JoinPath(dir_.root(), "secrets");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(MakeDirectories(path + "/many").ok());
    files.Remove(dir_, kAttempt, {});
    EXPECT_FALSE(FileExists(path));
  }
  const std::string bin = state_.File("removed");
  ASSERT_TRUE(FileExists(bin)) << "they were moved there";
  EXPECT_TRUE(testing::WaitUntil([&] { return ListDirectory(bin)->empty(); }));
}

TEST_F(SecretFilesTest, LieInMemoryAndGoWithTheAttempt) {
  const SecretFiles files(state_.path(), sweeper_, {"/dev/shm"});
  if (files.base().empty()) GTEST_SKIP() << "/dev/shm is no file system in memory here";
  ASSERT_TRUE(files.Write(dir_, kAttempt, {}, {{"token", "v1"}, {"key.pem", "a\nb"}}).ok());
  const std::string folder = run_dir::SecretsFolder(dir_);
  EXPECT_EQ(folder.rfind("/dev/shm/", 0), 0u) << folder;
  ExpectPrivate(folder, 0700);
  ExpectPrivate(folder + "/token", 0600);
  EXPECT_EQ(*ReadFile(folder + "/key.pem"), "a\nb");
  ASSERT_TRUE(files.Write(dir_, kAttempt, {}, {{"token", "v2"}}).ok()) << "a second try";
  EXPECT_EQ(*ReadFile(folder + "/token"), "v2");
  EXPECT_FALSE(FileExists(folder + "/key.pem"));
  files.Remove(dir_, kAttempt, {});
  EXPECT_FALSE(FileExists(folder));
  EXPECT_EQ(run_dir::SecretsFolder(dir_), "");
}

TEST_F(SecretFilesTest, LieInTheRunDirectoryOfAHostWithoutSuchAFileSystem) {
  const SecretFiles files(state_.path(), sweeper_, {state_.path(), "/nowhere"});
  ASSERT_TRUE(files.Write(dir_, kAttempt, {}, {{"token", "v1"}}).ok());
  EXPECT_EQ(*ReadFile(JoinPath(dir_.root(), "secrets/token")), "v1");
  ExpectPrivate(JoinPath(dir_.root(), "secrets"), 0700);
  files.Remove(dir_, kAttempt, {});
  EXPECT_FALSE(FileExists(JoinPath(dir_.root(), "secrets")));
}

TEST_F(SecretFilesTest, TheSupervisorRemovesThemToo) {
  for (const char* place : {"/dev/shm", "/nowhere"}) {
    const SecretFiles files(state_.path(), sweeper_, {place});
    ASSERT_TRUE(files.Write(dir_, kAttempt, {}, {{"token", "v1"}}).ok());
    const std::string folder = run_dir::SecretsFolder(dir_);
    run_dir::RemoveSecrets(dir_);
    EXPECT_FALSE(FileExists(folder + "/token")) << place;
    files.Remove(dir_, kAttempt, {});
  }
  // A link that leads elsewhere is left alone.
  const std::string precious = state_.Write("precious", "1");
  ASSERT_EQ(symlink(state_.path().c_str(), JoinPath(dir_.root(), "secrets").c_str()), 0);
  run_dir::RemoveSecrets(dir_);
  EXPECT_TRUE(FileExists(precious));
}

TEST_F(SecretFilesTest, WhatACrashHasLeftIsRemovedAtTheNextStart) {
  const SecretFiles files(state_.path(), sweeper_, {"/dev/shm"});
  if (files.base().empty()) GTEST_SKIP() << "/dev/shm is no file system in memory here";
  ASSERT_TRUE(files.Write(dir_, kAttempt, {}, {{"token", "v1"}}).ok());
  const std::string folder = run_dir::SecretsFolder(dir_);
  const SecretFiles other(state_.path() + "/another", sweeper_, {"/dev/shm"});
  other.RemoveAllBut({});
  EXPECT_TRUE(FileExists(folder)) << "it belongs to another daemon";
  files.RemoveAllBut({kAttempt});
  EXPECT_TRUE(FileExists(folder));
  files.RemoveAllBut({{JobId{3}, 2}});
  EXPECT_FALSE(FileExists(folder));
}

TEST_F(SecretFilesTest, ANameThatLeadsOutOfTheFolderIsRefused) {
  const SecretFiles files(state_.path(), sweeper_, {"/nowhere"});
  for (const char* name : {"", "..", "../x", ".x", "a/b"}) {
    EXPECT_FALSE(files.Write(dir_, kAttempt, {}, {{name, "v"}}).ok()) << name;
  }
  files.Remove(dir_, kAttempt, {});
}

}  // namespace
}  // namespace trainyard::agent
