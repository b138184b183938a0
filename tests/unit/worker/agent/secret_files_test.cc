// Tests the files with the secrets of attempts.
#include "worker/agent/secret_files.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"
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
};

TEST_F(SecretFilesTest, LieInMemoryAndGoWithTheAttempt) {
  const SecretFiles files(state_.path(), {"/dev/shm"});
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
  const SecretFiles files(state_.path(), {state_.path(), "/nowhere"});
  ASSERT_TRUE(files.Write(dir_, kAttempt, {}, {{"token", "v1"}}).ok());
  EXPECT_EQ(*ReadFile(JoinPath(dir_.root(), "secrets/token")), "v1");
  ExpectPrivate(JoinPath(dir_.root(), "secrets"), 0700);
  files.Remove(dir_, kAttempt, {});
  EXPECT_FALSE(FileExists(JoinPath(dir_.root(), "secrets")));
}

TEST_F(SecretFilesTest, TheSupervisorRemovesThemToo) {
  for (const char* place : {"/dev/shm", "/nowhere"}) {
    const SecretFiles files(state_.path(), {place});
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
  const SecretFiles files(state_.path(), {"/dev/shm"});
  if (files.base().empty()) GTEST_SKIP() << "/dev/shm is no file system in memory here";
  ASSERT_TRUE(files.Write(dir_, kAttempt, {}, {{"token", "v1"}}).ok());
  const std::string folder = run_dir::SecretsFolder(dir_);
  const SecretFiles other(state_.path() + "/another", {"/dev/shm"});
  other.RemoveAllBut({});
  EXPECT_TRUE(FileExists(folder)) << "it belongs to another daemon";
  files.RemoveAllBut({kAttempt});
  EXPECT_TRUE(FileExists(folder));
  files.RemoveAllBut({{JobId{3}, 2}});
  EXPECT_FALSE(FileExists(folder));
}

TEST_F(SecretFilesTest, ANameThatLeadsOutOfTheFolderIsRefused) {
  const SecretFiles files(state_.path(), {"/nowhere"});
  for (const char* name : {"", "..", "../x", ".x", "a/b"}) {
    EXPECT_FALSE(files.Write(dir_, kAttempt, {}, {{name, "v"}}).ok()) << name;
  }
  files.Remove(dir_, kAttempt, {});
}

}  // namespace
}  // namespace trainyard::agent
