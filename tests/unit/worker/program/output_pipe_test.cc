// Tests how what a program prints gets into the log of its rank.
#include "worker/program/output_pipe.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "common/base/env.h"
#include "common/base/files.h"
#include "tests/testing/small_disk.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/program/child.h"

namespace trainyard::program {
namespace {

class OutputPipeTest : public ::testing::Test {
 protected:
  // Runs a shell until it ends, and returns how many bytes of its output were lost.
  int64_t Run(const std::string& script, int64_t bytes_max = int64_t{1} << 30) {
    const UniqueFd log = *OpenFile(path_, O_WRONLY | O_CREAT | O_APPEND);
    const auto pipe = *OutputPipe::Start(log.get(), bytes_max);
    auto child = Child::Start({"/bin/sh", "-c", script}, dir_.path(), pipe->fd());
    EXPECT_TRUE(child.ok()) << child.status();
    EXPECT_TRUE(testing::WaitUntil([&] { return child->Poll().has_value(); }));
    return pipe->Finish();
  }

  testing::TempDir dir_;
  std::string path_ = dir_.Write("log", "old\n");
};

TEST_F(OutputPipeTest, KeepsTheOrderAndAllThatWasThere) {
  EXPECT_EQ(Run("echo out; echo err >&2; echo again > /dev/stderr; echo last > /dev/stdout"), 0);
  EXPECT_EQ(*ReadFile(path_), "old\nout\nerr\nagain\nlast\n");
}

TEST_F(OutputPipeTest, TakesMoreThanAPipeHolds) {
  EXPECT_EQ(Run("head -c 20000000 /dev/zero"), 0);
  EXPECT_EQ(*FileSize(path_), 20'000'004);
}

TEST_F(OutputPipeTest, BeyondItsBoundKeepsOnlyTheEnd) {
  EXPECT_EQ(Run("echo begun; head -c 20000000 /dev/zero; echo it broke >&2", 1'000'000), 0);
  const std::string log = *ReadFile(path_);
  EXPECT_EQ(log.size(), 4u + 1'000'000 + 4096);
  EXPECT_EQ(log.substr(0, 10), "old\nbegun\n");
  EXPECT_EQ(log.substr(log.size() - 9), "it broke\n");
}

TEST_F(OutputPipeTest, DoesNotWaitForWhatAProgramLeavesBehind) {
  const absl::Duration begin = Clock::Real()->Uptime();
  EXPECT_EQ(Run("yes & echo $! > pid"), 0);
  EXPECT_LT(Clock::Real()->Uptime() - begin, absl::Seconds(30));
  const auto pid = ReadFile(dir_.File("pid"));
  ASSERT_TRUE(pid.ok());
  (void)kill(std::atoi(pid->c_str()), SIGKILL);
}

TEST_F(OutputPipeTest, AFullDiskLosesTextAndStopsNobody) {
  ASSERT_TRUE(MakeDirectories(dir_.File("disk")).ok());
  const auto disk = testing::SmallDisk::Mount(dir_.File("disk"), "size=64k");
  if (!disk.ok()) GTEST_SKIP() << disk.status().message();
  path_ = (*disk)->File("log");
  EXPECT_GT(Run("head -c 200000 /dev/zero || exit 1; echo done >&2"), 100'000);
}

}  // namespace
}  // namespace trainyard::program
