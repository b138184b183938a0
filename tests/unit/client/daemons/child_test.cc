// Tests child processes: their output, their exit codes, and what happens when they hang.
#include "client/daemons/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "client/daemons/log_tail.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

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

// Reads from a descriptor that does not block until `text` has come.
bool Comes(int fd, const std::string& text) {
  std::string seen;
  return trainyard::testing::WaitUntil([&] {
    char byte = 0;
    while (read(fd, &byte, 1) == 1) seen += byte;
    return seen.find(text) != std::string::npos;
  });
}

TEST(Companion, ItsInputAndItsOutputsAreCarried) {
  auto companion =
      Companion::Start({"sh", "-c", "read line; echo got $line; echo oops >&2; exit 7"});
  ASSERT_TRUE(companion.ok()) << companion.status();
  ASSERT_EQ(write(companion->in(), "it\n", 3), 3);
  EXPECT_TRUE(Comes(companion->out(), "got it\n"));
  EXPECT_TRUE(Comes(companion->err(), "oops\n"));
  EXPECT_EQ(companion->End(), 7);
}

TEST(Companion, OneThatDoesNotEndIsEnded) {
  auto companion = Companion::Start({"sh", "-c", "trap '' TERM; echo up; exec sleep 600"});
  ASSERT_TRUE(companion.ok()) << companion.status();
  EXPECT_TRUE(Comes(companion->out(), "up"));
  EXPECT_EQ(companion->End(), 128 + SIGKILL);
}

TEST(Companion, AProgramThatIsNotThereHasACodeOfItsOwn) {
  auto companion = Companion::Start({"no-such-program"});
  ASSERT_TRUE(companion.ok()) << companion.status();
  EXPECT_EQ(companion->End(), Companion::kCannotStart);
}

TEST(Companion, ItEndsWithTheThreadThatStartedIt) {
  int out = -1;
  std::thread([&out] {
    auto companion = Companion::Start({"sh", "-c", "echo up; exec sleep 600"});
    ASSERT_TRUE(companion.ok()) << companion.status();
    ASSERT_TRUE(Comes(companion->out(), "up"));
    out = dup(companion->out());
    // It is never destroyed, as if this process had been killed.
    static auto* const left = new std::vector<Companion>();
    left->push_back(*std::move(companion));
  }).join();
  // The end of its output is the end of the process.
  EXPECT_TRUE(trainyard::testing::WaitUntil([out] {
    char byte = 0;
    return read(out, &byte, 1) == 0;
  }));
  close(out);
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
