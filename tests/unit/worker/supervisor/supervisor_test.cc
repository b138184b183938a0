// Tests the real supervisor with shell scripts as ranks, which follow docs/run_directory.md.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/file_watch.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/cgroup/fake_tree.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/supervisor_lock.h"

extern char** environ;

namespace trainyard {
namespace {

using run_dir::Outcome;

// No wait of a test takes longer than this. It ends as soon as its condition is true.
constexpr absl::Duration kPatience = absl::Seconds(30);

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    dir_.emplace(JoinPath(folder_, "run"));
    TY_CHECK_OK(MakeDirectories(dir_->root()));
    auto watch = FileWatch::Create();
    TY_CHECK_OK(watch.status());
    watch_.emplace(*std::move(watch));
    TY_CHECK_OK(watch_->Add(dir_->root()).status());
    // Orphans of a killed supervisor come to this process, which reaps and kills them.
    TY_CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  }

  ~SupervisorTest() override {
    for (const ProcessInfo& process : DescendantsOf(getpid(), ListProcesses())) {
      kill(static_cast<pid_t>(process.pid), SIGKILL);
    }
    while (waitpid(-1, nullptr, 0) > 0) {
    }
  }

  void Assign(int ranks, const std::string& cgroup = "") {
    run_dir::Assignment assignment;
    assignment.job = 12;
    assignment.attempt = 1;
    assignment.fencing_token = 1;
    assignment.world_size = ranks;
    if (!cgroup.empty()) {
      assignment.isolation.level = run_dir::IsolationLevel::kCgroup;
      assignment.isolation.cgroup = cgroup;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      run_dir::RankAssignment item;
      item.rank = rank;
      item.local_rank = rank;
      item.device = absl::StrCat("cpu-", rank);
      item.device_type = "cpu";
      item.threads = 3;
      assignment.ranks.push_back(item);
    }
    TY_CHECK_OK(run_dir::WriteAssignment(*dir_, assignment));
  }

  // Makes the control groups of an attempt with one rank, in plain files.
  std::string MakeGroups() {
    const std::string group = JoinPath(folder_, "group");
    for (const char* name : {"supervisor", "rank-0"}) {
      TY_CHECK_OK(MakeDirectories(JoinPath(group, name)));
      testing::FillGroup(JoinPath(group, name), {"memory", "pids"});
    }
    return group;
  }

  // `body` is a shell script; $R is its rank, $D its run directory.
  void Trainer(const std::string& body) {
    trainer_ = JoinPath(folder_, "trainer.sh");
    TY_CHECK_OK(WriteFileAtomically(
        trainer_, absl::StrCat("#!/bin/sh\nD=$TRAINYARD_RUN_DIR\nR=$TRAINYARD_RANK\n", body, "\n"),
        0755));
  }

  void Launch() {
    const std::string program = testing::BinaryPath("trainyard-supervisor");
    std::vector<std::string> words = {program, "--run_dir", dir_->root(), "--trainer", trainer_};
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, dir_->SupervisorLogPath().c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
    TY_CHECK(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
  }

  // Exit status of the supervisor itself.
  int Join() {
    int status = 0;
    const bool ended = WaitFor([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
    EXPECT_TRUE(ended) << "the supervisor did not end";
    return status;
  }

  bool WaitFor(const std::function<bool()>& condition) {
    const absl::Duration deadline = Clock::Real()->Uptime() + kPatience;
    while (!condition()) {
      if (Clock::Real()->Uptime() > deadline) return false;
      pollfd fds[] = {{watch_->fd(), POLLIN, 0}};
      poll(fds, 1, 20);
      (void)watch_->Take();
    }
    return true;
  }
  bool WaitForFile(const std::string& name) {
    return WaitFor([&] { return FileExists(JoinPath(dir_->root(), name)); });
  }

  run_dir::AttemptExit Exit() {
    const auto exit = run_dir::ReadAttemptExit(*dir_);
    EXPECT_TRUE(exit.ok()) << exit.status();
    return exit.ok() ? *exit : run_dir::AttemptExit{};
  }

  int64_t PidIn(const std::string& name) {
    const auto text = ReadFile(JoinPath(dir_->root(), name));
    int64_t pid = 0;
    EXPECT_TRUE(text.ok() && absl::SimpleAtoi(*text, &pid));
    return pid;
  }
  static bool Runs(int64_t pid) {
    const auto info = ReadProcess(pid);
    return info.ok() && info->state != 'Z';
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
  std::optional<run_dir::RunDir> dir_;
  std::optional<FileWatch> watch_;
  std::string trainer_;
  pid_t pid_ = 0;
};

TEST_F(SupervisorTest, RunsAllRanksWithTheirEnvironmentAndRecordsTheirSuccess) {
  Assign(2);
  Trainer("echo \"rank $R threads $OMP_NUM_THREADS args $*\"; echo to stderr >&2");
  Launch();
  EXPECT_EQ(Join(), 0);
  const auto exit = Exit();
  EXPECT_EQ(exit.outcome, Outcome::kSucceeded);
  ASSERT_EQ(exit.ranks.size(), 2u);
  EXPECT_GT(exit.end_time_us, 0);
  for (int rank = 0; rank < 2; ++rank) {
    const auto rank_exit = run_dir::ReadRankExit(*dir_, rank);
    ASSERT_TRUE(rank_exit.ok());
    EXPECT_EQ(rank_exit->outcome, Outcome::kSucceeded);
    const auto log = ReadFile(dir_->LogPath(rank));
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(*log, absl::StrCat("rank ", rank, " threads 3 args --run_dir ", dir_->root(),
                                 " --rank ", rank, "\nto stderr\n"));
  }
  const auto record = run_dir::ReadSupervisorRecord(*dir_);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->pid, pid_);
  EXPECT_EQ(record->boot_id, BootId());
  EXPECT_EQ(record->process_group, record->ranks[0].pid);
}

TEST_F(SupervisorTest, PutsEachRankIntoItsControlGroupBeforeItBegins) {
  const std::string group = MakeGroups();
  Assign(1, group);
  Trainer(absl::StrCat("test \"$(cat ", group, "/rank-0/cgroup.procs)\" = $$ && echo inside"));
  Launch();
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kSucceeded);
  EXPECT_EQ(ReadFile(dir_->LogPath(0)).value_or("no log"), "inside\n");
  EXPECT_EQ(ReadFile(JoinPath(group, "supervisor/cgroup.procs")).value_or(""), "0");
}

TEST_F(SupervisorTest, TellsWhatARankHadUsedWhenItsMemoryRanOut) {
  const std::string group = MakeGroups();
  Assign(1, group);
  // The script writes what the kernel would write while it kills the rank.
  Trainer(absl::StrCat("cd ", group, "/rank-0; echo 1048576 >memory.max; echo 1048576 ",
                       ">memory.peak; echo oom_kill 1 >memory.events; kill -KILL $$"));
  Launch();
  EXPECT_EQ(Join(), 0);
  const auto exit = Exit();
  EXPECT_EQ(exit.outcome, Outcome::kUserError);
  EXPECT_EQ(exit.reason, "OUT_OF_MEMORY");
  EXPECT_EQ(exit.message,
            "rank 0 ran out of memory: it used 1.0 MiB of 1.0 MiB; ask for more with "
            "resources.memory");
}

TEST_F(SupervisorTest, ARankWithoutItsControlGroupDoesNotBegin) {
  Assign(1, JoinPath(folder_, "nothing"));
  Trainer("echo begun");
  Launch();
  EXPECT_EQ(Join(), 0);
  const auto exit = Exit();
  EXPECT_EQ(exit.outcome, Outcome::kTransient);
  EXPECT_THAT(exit.message, ::testing::HasSubstr("nothing/rank-0/cgroup.procs"));
  EXPECT_EQ(ReadFile(dir_->LogPath(0)).value_or(""), "");
}

// If threads spin for long at their barriers, ranks that share their cores are slow.
TEST_F(SupervisorTest, BoundsHowLongTheThreadsOfARankSpin) {
  unsetenv("GOMP_SPINCOUNT");
  unsetenv("OMP_WAIT_POLICY");
  Assign(1);
  Trainer("echo $GOMP_SPINCOUNT");
  Launch();
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(ReadFile(dir_->LogPath(0)).value_or("no log"), "10000\n");
}

TEST_F(SupervisorTest, KeepsTheUsersNumberOfSpins) {
  setenv("GOMP_SPINCOUNT", "77", 1);
  Assign(1);
  Trainer("echo $GOMP_SPINCOUNT");
  Launch();
  EXPECT_EQ(Join(), 0);
  unsetenv("GOMP_SPINCOUNT");
  EXPECT_EQ(ReadFile(dir_->LogPath(0)).value_or("no log"), "77\n");
}

TEST_F(SupervisorTest, KeepsTheUsersWaitPolicy) {
  unsetenv("GOMP_SPINCOUNT");
  setenv("OMP_WAIT_POLICY", "active", 1);
  Assign(1);
  Trainer("echo \"$OMP_WAIT_POLICY$GOMP_SPINCOUNT\"");
  Launch();
  EXPECT_EQ(Join(), 0);
  unsetenv("OMP_WAIT_POLICY");
  EXPECT_EQ(ReadFile(dir_->LogPath(0)).value_or("no log"), "active\n");
}

TEST_F(SupervisorTest, ARankThatFailsGivesTheOutcomeAndItsPeersEndByThemselves) {
  Assign(2);
  Trainer(R"(if [ $R = 1 ]; then
  echo '{"outcome":"user_error","reason":"BAD_SPEC","message":"no such layer","step":0,
    "metrics":{}}' > $D/ranks/1/result.json
  exit 2
fi
exit 75)");
  Launch();
  EXPECT_EQ(Join(), 0);
  const auto exit = Exit();
  EXPECT_NE(exit.outcome, Outcome::kSucceeded);
  ASSERT_EQ(exit.ranks.size(), 2u);
  EXPECT_EQ(exit.ranks[1].outcome, Outcome::kUserError);
  EXPECT_EQ(exit.ranks[1].reason, "BAD_SPEC");
  EXPECT_EQ(exit.ranks[1].message, "no such layer");
}

TEST_F(SupervisorTest, AStopGivesTheRanksTimeToEndByThemselves) {
  Assign(2);
  Trainer("trap 'echo stopping; exit 15' TERM; touch $D/up.$R; while true; do sleep 0.05; done");
  Launch();
  ASSERT_TRUE(WaitForFile("up.0") && WaitForFile("up.1"));
  TY_CHECK_OK(run_dir::RequestStop(*dir_, {"cancelled", absl::Seconds(20)}));
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kStopped);
  EXPECT_EQ(Exit().reason, "cancelled");
  EXPECT_EQ(Exit().ranks[0].exit_code, 15);
  EXPECT_EQ(Exit().ranks[0].signal, 0);
}

TEST_F(SupervisorTest, RanksThatIgnoreTermAreKilledAfterTheGrace) {
  Assign(1);
  Trainer("trap '' TERM; touch $D/up.0; while true; do sleep 0.05; done");
  Launch();
  ASSERT_TRUE(WaitForFile("up.0"));
  TY_CHECK_OK(run_dir::RequestStop(*dir_, {"preempted", absl::Milliseconds(200)}));
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kStopped);
  EXPECT_EQ(Exit().ranks[0].signal, SIGKILL);
}

TEST_F(SupervisorTest, TermToTheSupervisorStopsTheRanks) {
  Assign(1);
  Trainer("trap 'exit 15' TERM; touch $D/up.0; while true; do sleep 0.05; done");
  Launch();
  ASSERT_TRUE(WaitForFile("up.0"));
  kill(pid_, SIGTERM);
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kStopped);
  EXPECT_EQ(Exit().reason, "drained");
}

TEST_F(SupervisorTest, ALeaseThatRunsOutStopsTheRanks) {
  Assign(1);
  TY_CHECK_OK(run_dir::WriteLease(*dir_, {Clock::Real()->Uptime() + absl::Milliseconds(300)}));
  Trainer("trap 'exit 15' TERM; while true; do sleep 0.05; done");
  Launch();
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kStopped);
  EXPECT_EQ(Exit().reason, "lease_expired");
}

TEST_F(SupervisorTest, AKilledSupervisorTakesItsRanksAlong) {
  Assign(2);
  Trainer("echo $$ > $D/pid.$R.new; mv $D/pid.$R.new $D/pid.$R; while true; do sleep 0.05; done");
  Launch();
  ASSERT_TRUE(WaitForFile("pid.0") && WaitForFile("pid.1"));
  const int64_t ranks[] = {PidIn("pid.0"), PidIn("pid.1")};
  const auto held = run_dir::IsSupervised(*dir_);
  EXPECT_TRUE(held.ok() && *held);
  kill(pid_, SIGKILL);
  Join();
  EXPECT_TRUE(WaitFor([&] { return !Runs(ranks[0]) && !Runs(ranks[1]); }));
  EXPECT_FALSE(FileExists(dir_->ExitPath()));
  EXPECT_FALSE(*run_dir::IsSupervised(*dir_));
  // No other supervisor runs the attempt a second time.
  Launch();
  EXPECT_NE(Join(), 0);
  EXPECT_FALSE(FileExists(dir_->ExitPath()));
}

TEST_F(SupervisorTest, ExitIsWrittenOnlyWhenDescendantsInOtherSessionsAreGone) {
  Assign(1);
  Trainer(
      R"(setsid sh -c "trap '' TERM HUP; echo \$\$ > $D/stray.new
mv $D/stray.new $D/stray; while true; do sleep 0.05; done" &
while [ ! -e $D/stray ]; do sleep 0.02; done
exit 0)");
  Launch();
  ASSERT_TRUE(WaitForFile("stray"));
  const int64_t stray = PidIn("stray");
  ASSERT_TRUE(WaitForFile("exit.json"));
  EXPECT_FALSE(Runs(stray));
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kSucceeded);
}

TEST_F(SupervisorTest, ATrainerThatCannotBeExecutedIsNamed) {
  Assign(1);
  trainer_ = JoinPath(folder_, "no-such-trainer");
  Launch();
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kTransient);
  EXPECT_EQ(Exit().reason, "TRAINER_NOT_STARTED");
  EXPECT_THAT(Exit().message, ::testing::HasSubstr("no-such-trainer"));
}

TEST_F(SupervisorTest, AStopBeforeTheStartStartsNothing) {
  Assign(1);
  Trainer("touch $D/up.0");
  TY_CHECK_OK(run_dir::RequestStop(*dir_, {"cancelled", absl::Seconds(1)}));
  Launch();
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kStopped);
  EXPECT_EQ(Exit().reason, "cancelled");
  EXPECT_FALSE(FileExists(JoinPath(dir_->root(), "up.0")));
}

TEST_F(SupervisorTest, ASecondSupervisorLeavesTheFirstAlone) {
  Assign(1);
  Trainer("touch $D/up.0; while [ ! -e $D/go ]; do sleep 0.02; done; exit 0");
  Launch();
  const pid_t first = pid_;
  ASSERT_TRUE(WaitForFile("up.0"));
  Launch();
  EXPECT_NE(Join(), 0);
  TY_CHECK_OK(WriteFileAtomically(JoinPath(dir_->root(), "go"), ""));
  pid_ = first;
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kSucceeded);
  Launch();
  EXPECT_EQ(Join(), 0);
}

TEST_F(SupervisorTest, AnAssignmentThatCannotBeReadIsAFailureWithAReason) {
  TY_CHECK_OK(WriteFileAtomically(dir_->AssignmentPath(), "{\"format\": 1"));
  Launch();
  EXPECT_NE(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kTransient);
  EXPECT_EQ(Exit().reason, "CORRUPT_FILE");
}

// An exit record that cannot be written is tried again until it can; a folder in its place stands
// for the full disk.
TEST_F(SupervisorTest, AnExitThatCannotBeWrittenIsTriedAgain) {
  Assign(1);
  const std::string blocker = dir_->RankExitPath(0);
  Trainer("mkdir $D/ranks/0/exit.json; exit 0");
  Launch();
  ASSERT_TRUE(WaitFor([&] {
    const auto log = ReadFile(dir_->SupervisorLogPath());
    return log.ok() && log->find("cannot be written") != std::string::npos;
  }));
  EXPECT_FALSE(FileExists(dir_->ExitPath()));
  ASSERT_EQ(rmdir(blocker.c_str()), 0);
  EXPECT_EQ(Join(), 0);
  EXPECT_EQ(Exit().outcome, Outcome::kSucceeded);
}

// Returns shell words that promise to report again within this many microseconds.
std::string PromiseWithin(int64_t us) {
  return absl::StrCat(R"(U=$(awk '{printf "%.0f", $1 * 1000000}' /proc/uptime)
echo "{\"state\":\"running\",\"step\":7,\"silent_until_boottime_us\":$((U+)",
                      us, R"())}" > $D/ranks/$R/progress.new
mv $D/ranks/$R/progress.new $D/ranks/$R/progress.json
)");
}

// No signal is sent to the supervisor, and no rank ends, so only the broken promise shows the
// problem.
TEST_F(SupervisorTest, ARankThatIsSilentIsNamedWithItsStacksAndItsPeersEnd) {
  Assign(2);
  Trainer(absl::StrCat("trap 'exit 15' TERM\n", R"(if [ $R = 1 ]; then
)",
                       PromiseWithin(500'000), R"(kill -STOP $$
fi
while true; do
)",
                       PromiseWithin(60'000'000), "sleep 0.2\ndone"));
  Launch();
  EXPECT_EQ(Join(), 0);
  const auto exit = Exit();
  EXPECT_EQ(exit.outcome, Outcome::kTransient);
  EXPECT_EQ(exit.reason, "RANK_STUCK");
  EXPECT_EQ(exit.failed_rank, 1);
  EXPECT_THAT(exit.message, ::testing::StartsWith("rank 1 is stuck after step 7 (running): "));
  EXPECT_THAT(exit.message, ::testing::HasSubstr("is stopped by a signal (T)"));
  EXPECT_EQ(exit.ranks[0].outcome, Outcome::kStopped);
  EXPECT_EQ(exit.ranks[1].reason, "RANK_STUCK");
  const auto log = ReadFile(dir_->LogPath(1));
  ASSERT_TRUE(log.ok());
  EXPECT_THAT(*log, ::testing::HasSubstr("==== stacks of rank 1 (process "));
  EXPECT_THAT(*log, ::testing::HasSubstr("thread "));
  EXPECT_THAT(ReadFile(dir_->LogPath(0)).value(), ::testing::Not(::testing::HasSubstr("stacks")));
}

// The documentation promises that nothing of the attempt is left 5 s after a rank has failed, not
// even peers that ignore signals. The rest is for a busy machine.
TEST_F(SupervisorTest, PeersThatIgnoreTheFailureAreGoneWithinSeconds) {
  Assign(3);
  Trainer(R"(trap '' TERM
touch $D/up.$R
if [ $R = 2 ]; then
  while [ ! -e $D/up.0 -o ! -e $D/up.1 ]; do sleep 0.02; done
  date +%s%N > $D/failed
  kill -KILL $$
fi
while true; do sleep 0.05; done)");
  Launch();
  EXPECT_EQ(Join(), 0);
  const auto exit = Exit();
  EXPECT_EQ(exit.reason, "KILLED_BY_SIGNAL");
  EXPECT_EQ(exit.failed_rank, 2);
  EXPECT_EQ(exit.ranks[0].signal, SIGKILL);
  EXPECT_THAT(exit.ranks[0].message, ::testing::HasSubstr("rank 0 did not answer; it "));
  const auto text = ReadFile(JoinPath(dir_->root(), "failed"));
  int64_t failed_ns = 0;
  ASSERT_TRUE(text.ok() && absl::SimpleAtoi(absl::StripSuffix(*text, "\n"), &failed_ns));
  const absl::Duration took = absl::Microseconds(exit.end_time_us) - absl::Nanoseconds(failed_ns);
  std::printf("all gone %.2f s after the failure\n", absl::ToDoubleSeconds(took));
  EXPECT_LT(took, absl::Seconds(5) + absl::Seconds(3));
}

}  // namespace
}  // namespace trainyard
