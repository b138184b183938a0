// Runs real programs, also such that do not end or write for ever.
#include "common/command/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

Command Shell(const std::string& script) {
  Command command;
  command.words = {"sh", "-c", script};
  command.environment = {"PATH=/usr/bin:/bin", "X=y"};
  return command;
}

// Returns true if the process whose pid is in the file has ended.
bool HasEnded(const std::string& file) {
  int64_t pid = 0;
  const auto text = ReadFile(file);
  if (!text.ok() || !absl::SimpleAtoi(*text, &pid)) return false;
  const auto process = ReadProcess(pid);
  return !process.ok() || process->state == 'Z';
}

TEST(CommandTest, OutputErrorsExitAndInputArePassed) {
  std::atomic<bool> is_stopping = false;
  Command command = Shell("cat; echo err >&2; echo $X; env | wc -l; exit 3");
  command.input = "in\n";
  const auto result = RunCommand(command, is_stopping);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_THAT(result->out, HasSubstr("in\ny\n"));
  EXPECT_EQ(result->err, "err\n");
}

TEST(CommandTest, AProgramThatTakesTooLongIsKilledWithItsChildren) {
  testing::TempDir dir;
  std::atomic<bool> is_stopping = false;
  Command command = Shell("sleep 100 & echo $! > " + dir.File("pid") + "; wait");
  command.timeout = absl::Milliseconds(500);
  EXPECT_EQ(RunCommand(command, is_stopping).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(testing::WaitUntil([&] { return HasEnded(dir.File("pid")); }));
}

TEST(CommandTest, AnOrphanThatHoldsTheOutputDoesNotHoldUs) {
  std::atomic<bool> is_stopping = false;
  const auto result = RunCommand(Shell("sleep 100 & echo $!"), is_stopping);
  ASSERT_TRUE(result.ok()) << result.status();
  int orphan = 0;
  ASSERT_TRUE(absl::SimpleAtoi(absl::StripTrailingAsciiWhitespace(result->out), &orphan));
  EXPECT_EQ(kill(orphan, SIGKILL), 0) << "it lives, as the delivery of a mail may";
}

TEST(CommandTest, AllThatAProgramHasWrittenIsRead) {
  std::atomic<bool> is_stopping = false;
  const auto result = RunCommand(Shell("head -c 300000 /dev/zero"), is_stopping);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out.size(), 300'000u);
}

TEST(CommandTest, StoppingEndsIt) {
  std::atomic<bool> is_stopping = true;
  EXPECT_EQ(RunCommand(Shell("sleep 100"), is_stopping).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(CommandTest, TooMuchOutputIsRefused) {
  std::atomic<bool> is_stopping = false;
  EXPECT_EQ(RunCommand(Shell("yes"), is_stopping).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto errors = RunCommand(Shell("head -c 100000 /dev/zero >&2; echo done"), is_stopping);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_EQ(errors->err.size(), 4096u);
  EXPECT_EQ(errors->out, "done\n");
}

TEST(CommandTest, AMissingProgramIsNotFound) {
  std::atomic<bool> is_stopping = false;
  Command command;
  command.words = {"trainyard-no-such-program"};
  EXPECT_EQ(RunCommand(command, is_stopping).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace trainyard
