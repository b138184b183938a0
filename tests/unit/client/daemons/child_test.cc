// Tests child processes: their output, their exit codes, and what happens when they hang.
#include "client/daemons/child.h"

#include <gtest/gtest.h>

#include "client/daemons/log_tail.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::daemons {
namespace {

TEST(Child, ItsInputAndOutputAreCarriedWhateverTheirSize) {
  const std::string input(300'000, 'x');
  const auto result =
      RunChild({"/bin/sh", "-c", "cat; echo oops >&2; exit 7"}, input, absl::Seconds(30));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->out, input);
  EXPECT_EQ(result->err, "oops\n");
}

TEST(Child, OneThatReadsNothingIsNoProblem) {
  const auto result = RunChild({"/bin/true"}, std::string(300'000, 'x'), absl::Seconds(30));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
}

TEST(Child, ItsOutputIsHandedOnAsItComes) {
  std::string told;
  const auto result =
      RunChild({"/bin/sh", "-c", "echo one; echo two; echo oops >&2"}, "", absl::Seconds(30),
               [&](absl::string_view text) { told.append(text.data(), text.size()); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(told, "one\ntwo\n");
  EXPECT_EQ(result->out, "");
  EXPECT_EQ(result->err, "oops\n");
}

TEST(Child, OneThatTakesTooLongIsEnded) {
  const auto result = RunChild({"/bin/sh", "-c", "exec sleep 600"}, "", absl::Milliseconds(50));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Child, ASignalIsAnExitCodeOfItsOwn) {
  const auto result = RunChild({"/bin/sh", "-c", "kill -9 $$"}, "", absl::Seconds(30));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_code, 128 + 9);
}

TEST(LogTail, TheCauseIsTheLastErrorOfThisStart) {
  trainyard::testing::TempDir dir;
  const std::string old = "error: an old one\n";
  const std::string path =
      dir.Write("log", old + "info: starting\nerror: cannot listen on 'x'\ninfo: bye\n\n");
  EXPECT_EQ(CauseFromLog(path, static_cast<int64_t>(old.size())), "error: cannot listen on 'x'");
  EXPECT_EQ(CauseFromLog(dir.Write("plain", "one\ntwo\n"), 0), "two");
  EXPECT_EQ(CauseFromLog(dir.File("none"), 0), "");
}

}  // namespace
}  // namespace trainyard::daemons
