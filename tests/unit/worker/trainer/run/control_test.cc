// Tests requests by file and by signal, each of which is answered once.
#include "worker/trainer/run/control.h"

#include "common/base/files.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::trainer {
namespace {

void WriteRequest(const run_dir::RunDir& dir, absl::string_view text) {
  ASSERT_TRUE(MakeDirectories(dir.ControlDir()).ok());
  ASSERT_TRUE(ReplaceFile(dir.CheckpointRequestPath(), text).ok());
}

TEST(ControlReader, AFileRequestIsAnsweredOnce) {
  const testing::TempDir folder;
  const run_dir::RunDir dir(folder.path());
  const Signals signals;
  ControlReader control(dir, signals);
  EXPECT_FALSE(control.CheckpointRequested());
  WriteRequest(dir, "1\n");
  EXPECT_TRUE(control.CheckpointRequested());
  EXPECT_TRUE(control.CheckpointRequested());
  EXPECT_EQ(control.AnswerCheckpoint(), 1);
  EXPECT_FALSE(control.CheckpointRequested());
  WriteRequest(dir, "2\n");
  EXPECT_TRUE(control.CheckpointRequested());
}

TEST(ControlReader, ARequestThatCameAfterTheLookIsNotAnswered) {
  const testing::TempDir folder;
  const run_dir::RunDir dir(folder.path());
  Signals signals;
  ControlReader control(dir, signals);
  signals.checkpoint_requests = 1;
  EXPECT_TRUE(control.CheckpointRequested());
  signals.checkpoint_requests = 2;
  WriteRequest(dir, "1\n");
  EXPECT_EQ(control.AnswerCheckpoint(), 0);
  EXPECT_TRUE(control.CheckpointRequested());
}

TEST(ControlReader, StopComesFromTheSignal) {
  const testing::TempDir folder;
  Signals signals;
  ControlReader control(run_dir::RunDir(folder.path()), signals);
  EXPECT_FALSE(control.stop_requested());
  signals.stop = true;
  EXPECT_TRUE(control.stop_requested());
}

TEST(ControlReader, ADamagedRequestIsNoRequest) {
  const testing::TempDir folder;
  const run_dir::RunDir dir(folder.path());
  WriteRequest(dir, "soon");
  const Signals signals;
  ControlReader control(dir, signals);
  EXPECT_FALSE(control.CheckpointRequested());
}

}  // namespace
}  // namespace trainyard::trainer
