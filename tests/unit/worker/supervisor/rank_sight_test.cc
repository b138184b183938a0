// Tests how ranks are observed, on processes of this test: one that sleeps, one that is stopped,
// one that spins.
#include "worker/supervisor/rank_sight.h"
#include "tests/testing/paths.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::supervisor {

// Lies in memory that the test shares with its child, and says how far the child is.
using Reached = std::atomic<bool>;

// These functions have names of their own in the stacks.
__attribute__((noinline)) void SpinInTheTest(Reached& reached) {
  reached.store(true);
  while (reached.load(std::memory_order_relaxed)) {
  }
}
__attribute__((noinline)) void SleepInTheTest(Reached& reached) {
  reached.store(true);
  while (true) pause();
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kStackProgram = testing::BinaryPath("trainyard-stack");
constexpr absl::Duration kLimit = absl::Seconds(20);  // on a busy machine

// A child that is in `body`, until the end of the test.
class Child {
 public:
  explicit Child(void (*body)(Reached&)) {
    void* shared =
        mmap(nullptr, sizeof(Reached), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TY_CHECK(shared != MAP_FAILED);
    reached_ = new (shared) Reached(false);
    pid_ = fork();
    TY_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      body(*reached_);
      _exit(0);
    }
    TY_CHECK(testing::WaitUntil([this] { return reached_->load(); }));
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    munmap(reached_, sizeof(Reached));
  }
  pid_t pid() const { return pid_; }
  bool WaitForState(char state) const {
    return testing::WaitUntil([&] {
      const auto info = ReadProcess(pid_);
      return info.ok() && info->state == state;
    });
  }

 private:
  Reached* reached_ = nullptr;
  pid_t pid_ = 0;
};

TEST(TellingFrames, AreThoseOfTheFirstThreadBelowWhatOnlyWaits) {
  const std::string stacks =
      "thread 12 (trainer)\n"
      "  #0 ?? (libc.so.6)\n"
      "  #1 pthread_cond_wait (libc.so.6)\n"
      "  #2 trainyard::(anonymous namespace)::Queue::Take(std::vector<int> const&) (trainer)\n"
      "  #3 trainyard::trainer::TrainLoop::Step() (trainer)\n"
      "  #4 main (trainer)\n"
      "thread 13 (trainer)\n"
      "  #0 Other() (trainer)\n";
  EXPECT_THAT(TellingFrames(stacks),
              ElementsAre("Queue::Take", "trainer::TrainLoop::Step", "main"));
  EXPECT_TRUE(TellingFrames("").empty());
  EXPECT_TRUE(TellingFrames("thread 1 (x)\n  (no frames: gone)\n  #\n").empty());
}

TEST(RankSight, TellsTheStateOfTheProcess) {
  const Child sleeper(SleepInTheTest);
  EXPECT_TRUE(sleeper.WaitForState('S'));
  EXPECT_THAT(StateClause(sleeper.pid()), StartsWith("sleeps in "));
  kill(sleeper.pid(), SIGSTOP);
  EXPECT_TRUE(sleeper.WaitForState('T'));
  EXPECT_EQ(StateClause(sleeper.pid()), "is stopped by a signal (T)");
  const Child spinner(SpinInTheTest);
  EXPECT_TRUE(spinner.WaitForState('R'));
  EXPECT_EQ(StateClause(spinner.pid()), "is running (R)");
}

TEST(RankSight, SaysWhyThereAreNoStacksAndWhatIsKnownWithoutThem) {
  const Child sleeper(SleepInTheTest);
  EXPECT_TRUE(sleeper.WaitForState('S'));
  const RankSight sight = LookAt(sleeper.pid(), "/nowhere/trainyard-stack", kLimit);
  EXPECT_THAT(sight.text, HasSubstr("no stacks: '/nowhere/trainyard-stack' is not installed"));
  EXPECT_THAT(sight.text, HasSubstr(absl::StrCat("thread ", sleeper.pid())));
  EXPECT_THAT(sight.clause, StartsWith("sleeps in "));
}

TEST(RankSight, AReaderThatHangsOrNeverStopsIsEnded) {
  const testing::TempDir folder;
  const Child sleeper(SleepInTheTest);
  for (const char* script : {"#!/bin/sh\necho half; exec sleep 1000\n", "#!/bin/sh\nexec yes\n"}) {
    const std::string program = folder.File("reader");
    ASSERT_TRUE(WriteFileAtomically(program, script, 0755).ok());
    const absl::Duration begin = Clock::Real()->Uptime();
    const RankSight sight = LookAt(sleeper.pid(), program, absl::Milliseconds(300));
    EXPECT_LT(Clock::Real()->Uptime() - begin, absl::Seconds(10));
    EXPECT_THAT(sight.text, HasSubstr("cut off"));
    EXPECT_LT(sight.text.size(), size_t{1} << 20);
  }
}

class StackProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FileExists(kStackProgram)) GTEST_SKIP() << "built without libdw";
  }
};

TEST_F(StackProgramTest, ReadsAStoppedProcessAndLeavesItStopped) {
  const Child child(SleepInTheTest);
  EXPECT_TRUE(child.WaitForState('S'));
  kill(child.pid(), SIGSTOP);
  EXPECT_TRUE(child.WaitForState('T'));
  const RankSight sight = LookAt(child.pid(), kStackProgram, kLimit);
  EXPECT_THAT(sight.clause, StartsWith("is stopped by a signal (T), in "));
  EXPECT_THAT(sight.clause, HasSubstr("supervisor::SleepInTheTest"));
  EXPECT_THAT(sight.text, HasSubstr("trainyard::supervisor::SleepInTheTest("));
  EXPECT_TRUE(child.WaitForState('T'));
}

TEST_F(StackProgramTest, ReadsASpinningProcessWhichGoesOn) {
  const Child child(SpinInTheTest);
  EXPECT_TRUE(child.WaitForState('R'));
  const RankSight sight = LookAt(child.pid(), kStackProgram, kLimit);
  EXPECT_THAT(sight.clause, StartsWith("is running (R), in supervisor::SpinInTheTest"));
  EXPECT_TRUE(child.WaitForState('R'));
}

TEST_F(StackProgramTest, AProcessThatIsGoneIsAnErrorAndNoStack) {
  pid_t gone = 0;
  {
    const Child child([](Reached& reached) { reached.store(true); });
    gone = child.pid();
  }
  const RankSight sight = LookAt(gone, kStackProgram, kLimit);
  EXPECT_EQ(sight.clause, "is gone");
  EXPECT_THAT(sight.text, HasSubstr(absl::StrCat("cannot read the stacks of process ", gone)));
}

}  // namespace
}  // namespace trainyard::supervisor
