#include "worker/trainer/control.h"

#include "common/base/files.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "worker/run_dir/control.h"

namespace trainyard::trainer {
namespace {

TEST(ControlReader, AFileRequestIsAnsweredOnce) {
  const testing::TempDir folder;
  const run_dir::RunDir dir(folder.path());
  const Signals signals;
  ControlReader control(dir, signals);
  EXPECT_FALSE(control.CheckpointRequested());
  ASSERT_TRUE(run_dir::RequestCheckpoint(dir).ok());
  EXPECT_TRUE(control.CheckpointRequested());
  EXPECT_TRUE(control.CheckpointRequested());
  EXPECT_EQ(control.AnswerCheckpoint(), 1);
  EXPECT_FALSE(control.CheckpointRequested());
  ASSERT_TRUE(run_dir::RequestCheckpoint(dir).ok());
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
  ASSERT_TRUE(run_dir::RequestCheckpoint(dir).ok());
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
  ASSERT_TRUE(run_dir::RequestCheckpoint(dir).ok());
  ASSERT_TRUE(ReplaceFile(dir.CheckpointRequestPath(), "soon").ok());
  const Signals signals;
  ControlReader control(dir, signals);
  EXPECT_FALSE(control.CheckpointRequested());
}

}  // namespace
}  // namespace trainyard::trainer
