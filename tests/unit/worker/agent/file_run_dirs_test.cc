// Tests that the daemon never waits for what the owner of an attempt has put into its folder.
#include "worker/agent/file_run_dirs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/supervisor_lock.h"

namespace trainyard::agent {
namespace {

constexpr AttemptId kAttempt = {JobId{12}, 1};

class FileRunDirsTest : public ::testing::Test {
 protected:
  FileRunDirsTest() {
    auto channel = rpc::MakeChannel("unix:" + folder_.File("nowhere"));
    TY_CHECK_OK(channel.status());
    stub_ = v1::AgentService::NewStub(*channel);
    code_.emplace(folder_.path(), *Clock::Real());
    fetcher_.emplace(*stub_, *code_, *Clock::Real(), *Rng::Real(), [] {});
    HostSettings settings;
    settings.state_dir = folder_.path();
    dirs_.emplace(settings, std::vector<Device>(), *fetcher_, *Clock::Real(), nullptr);
    DesiredAttempt wanted;
    wanted.world_size = 1;
    wanted.ranks.resize(1);
    TY_CHECK_OK(dirs_->Prepare(kAttempt, wanted));
    dir_ = dirs_->DirOf(kAttempt);
  }

  testing::TempDir folder_;
  std::unique_ptr<v1::AgentService::Stub> stub_;
  std::optional<CodeCache> code_;
  std::optional<CheckpointFetcher> fetcher_;
  std::optional<FileRunDirs> dirs_;
  run_dir::RunDir dir_{folder_.path()};
};

TEST_F(FileRunDirsTest, SecretsAreRemovedOnceWhenTheAttemptHasEnded) {
  const std::string secrets = JoinPath(dir_.root(), "secrets");
  TY_CHECK_OK(MakeDirectories(JoinPath(secrets, "deep")));
  (void)dirs_->Look(kAttempt);
  EXPECT_TRUE(FileExists(secrets)) << "the attempt has not ended";
  TY_CHECK_OK(run_dir::WriteAttemptExit(dir_, {}));
  (void)dirs_->Look(kAttempt);
  EXPECT_FALSE(FileExists(secrets));
  EXPECT_TRUE(FileExists(folder_.File("removed"))) << "the sweeper removes it";
  // Whatever its owner puts there now costs no further turn.
  TY_CHECK_OK(MakeDirectories(secrets));
  (void)dirs_->Look(kAttempt);
  EXPECT_TRUE(FileExists(secrets));
  EXPECT_TRUE(dirs_->Remove(kAttempt).ok());
  EXPECT_FALSE(FileExists(dir_.root()));
}

TEST_F(FileRunDirsTest, ACheckpointThatIsPrunedIsLeftToTheSweeper) {
  const std::string folder = dir_.CheckpointsDir();
  const std::string ten = checkpoint::CheckpointPath(folder, 10);
  TY_CHECK_OK(MakeDirectories(JoinPath(ten, "many")));
  TY_CHECK_OK(MakeDirectories(checkpoint::CheckpointPath(folder, 20)));
  EXPECT_TRUE(dirs_->PruneCheckpoint(kAttempt, 10).ok());
  EXPECT_FALSE(FileExists(ten));
  EXPECT_TRUE(FileExists(folder_.File("removed")));
  EXPECT_TRUE(FileExists(checkpoint::CheckpointPath(folder, 20)));
  EXPECT_TRUE(dirs_->PruneCheckpoint(kAttempt, 10).ok()) << "it is gone";
  // The owner may put a link in place of the folder.
  const std::string precious = checkpoint::CheckpointPath(folder_.File("others"), 20);
  TY_CHECK_OK(MakeDirectories(precious));
  ASSERT_EQ(rename(folder.c_str(), JoinPath(dir_.root(), "old").c_str()), 0);
  ASSERT_EQ(symlink(folder_.File("others").c_str(), folder.c_str()), 0);
  EXPECT_FALSE(dirs_->PruneCheckpoint(kAttempt, 20).ok());
  EXPECT_TRUE(FileExists(precious));
}

TEST_F(FileRunDirsTest, ASupervisorThatIsEndingIsAwaitedButNotForEver) {
  TY_CHECK_OK(run_dir::WriteAttemptExit(dir_, {}));
  auto lock = run_dir::SupervisorLock::Acquire(dir_);
  TY_CHECK_OK(lock.status());
  EXPECT_TRUE(absl::IsUnavailable(dirs_->Remove(kAttempt)));
  EXPECT_TRUE(FileExists(dir_.root()));
  EXPECT_TRUE(testing::WaitUntil([&] { return dirs_->Remove(kAttempt).ok(); }));
  EXPECT_FALSE(FileExists(dir_.root()));
}

TEST_F(FileRunDirsTest, ASupervisorThatHasEndedIsNotAwaited) {
  TY_CHECK_OK(run_dir::WriteAttemptExit(dir_, {}));
  TY_CHECK_OK(run_dir::SupervisorLock::Acquire(dir_).status());
  EXPECT_TRUE(dirs_->Remove(kAttempt).ok());
}

}  // namespace
}  // namespace trainyard::agent
