// Tests the supervisor without processes: ends, stops, leases and stuck ranks.
#include "worker/supervisor/supervisor_core.h"

#include <csignal>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::supervisor {
namespace {

using run_dir::Outcome;
using run_dir::RankResult;

constexpr absl::Duration kStart = absl::Seconds(1000);

RankResult Result(Outcome outcome, const std::string& reason = "",
                  const std::string& message = "") {
  RankResult result;
  result.outcome = outcome;
  result.reason = reason;
  result.message = message;
  return result;
}

RankEnd Ended(int rank, int exit_code, int signal) {
  RankEnd end;
  end.rank = rank;
  end.exit_code = exit_code;
  end.signal = signal;
  return end;
}

RankEnd Succeeded(int rank) {
  RankEnd end = Ended(rank, 0, 0);
  end.result = Result(Outcome::kSucceeded);
  return end;
}

RankEnd Failed(int rank, Outcome outcome, const std::string& reason) {
  RankEnd end = Ended(rank, run_dir::ExitCode(outcome), 0);
  end.result = Result(outcome, reason, "because");
  return end;
}

RankEnd Killed(int rank, int signal) {
  return Ended(rank, 0, signal);
}

TEST(JudgeRank, TakesTheResultWhereTheExitCodeAgrees) {
  const auto exit = JudgeRank(Failed(1, Outcome::kUserError, "DATASET_NOT_FOUND"), false);
  EXPECT_EQ(exit.rank, 1);
  EXPECT_EQ(exit.outcome, Outcome::kUserError);
  EXPECT_EQ(exit.reason, "DATASET_NOT_FOUND");
  EXPECT_EQ(exit.message, "because");
  EXPECT_EQ(exit.exit_code, run_dir::kExitUserError);
}

TEST(JudgeRank, ExitCodeZeroWithoutAResultSucceeded) {
  EXPECT_EQ(JudgeRank(Ended(0, 0, 0), false).outcome, Outcome::kSucceeded);
}

TEST(JudgeRank, AResultOfSuccessDoesNotHideACrashBehindIt) {
  RankEnd end = Succeeded(0);
  end.signal = SIGSEGV;
  const auto exit = JudgeRank(end, false);
  EXPECT_EQ(exit.outcome, Outcome::kTransient);
  EXPECT_EQ(exit.reason, "KILLED_BY_SIGNAL");
  EXPECT_THAT(exit.message, testing::HasSubstr("signal 11"));
  end.signal = 0;
  end.exit_code = 3;
  EXPECT_EQ(JudgeRank(end, false).outcome, Outcome::kTransient);
  EXPECT_EQ(JudgeRank(end, false).reason, "EXITED_BADLY");
}

TEST(JudgeRank, AnExitCodeOfZeroDoesNotHideAFailureInTheResult) {
  RankEnd end = Failed(0, Outcome::kHardware, "DEVICE_LOST");
  end.exit_code = 0;
  EXPECT_EQ(JudgeRank(end, false).outcome, Outcome::kHardware);
}

TEST(JudgeRank, ASignalIsTransientUnlessTheGroupWasToldToGo) {
  EXPECT_EQ(JudgeRank(Killed(0, SIGKILL), false).outcome, Outcome::kTransient);
  EXPECT_EQ(JudgeRank(Killed(0, SIGKILL), true).outcome, Outcome::kStopped);
  EXPECT_EQ(JudgeRank(Killed(0, SIGTERM), true).outcome, Outcome::kStopped);
  EXPECT_EQ(JudgeRank(Killed(0, SIGSEGV), true).outcome, Outcome::kTransient);
}

TEST(JudgeRank, ARankThatUsedTooMuchMemoryIsTheUsersError) {
  RankEnd end = Killed(3, SIGKILL);
  end.out_of_memory = "used 1.0 GiB of 1.0 GiB; ask for more with resources.memory";
  const auto exit = JudgeRank(end, false);
  EXPECT_EQ(exit.outcome, Outcome::kUserError);
  EXPECT_EQ(exit.reason, "OUT_OF_MEMORY");
  EXPECT_EQ(exit.message,
            "rank 3 ran out of memory: it used 1.0 GiB of 1.0 GiB; ask for more with "
            "resources.memory");
  end.result = run_dir::RankResult{.outcome = Outcome::kTransient, .reason = "PROGRAM_FAILED"};
  EXPECT_EQ(JudgeRank(end, false).reason, "OUT_OF_MEMORY") << "what it says is a consequence";
  EXPECT_EQ(JudgeRank(end, true).outcome, Outcome::kStopped) << "it was told to go anyway";
  end.signal = 0;
  end.result.reset();
  EXPECT_EQ(JudgeRank(end, false).outcome, Outcome::kSucceeded) << "it could do without a child";
}

TEST(SupervisorCore, AllRanksSucceedAndNothingIsSignalled) {
  SupervisorCore core({0, 1});
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kNone);
  EXPECT_EQ(core.NextDeadline(), absl::InfiniteDuration());
  core.RankEnded(kStart, Succeeded(1));
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kNone);
  core.RankEnded(kStart, Succeeded(0));
  core.GroupGone();
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kNone);
  EXPECT_TRUE(core.gone());
  const auto exit = core.Exit(7);
  EXPECT_EQ(exit.outcome, Outcome::kSucceeded);
  EXPECT_EQ(exit.end_time_us, 7);
  ASSERT_EQ(exit.ranks.size(), 2u);
  EXPECT_EQ(exit.ranks[0].rank, 0);
  EXPECT_EQ(exit.ranks[1].rank, 1);
}

TEST(SupervisorCore, PeersOfAFailedRankGetAGraceThenTermThenKill) {
  SupervisorCore core({0, 1});
  core.RankEnded(kStart, Failed(1, Outcome::kUserError, "BAD"));
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kNone);
  EXPECT_EQ(core.NextDeadline(), kStart + kPeerGrace);
  EXPECT_EQ(core.Tick(kStart + kPeerGrace - absl::Milliseconds(1)), SignalToSend::kNone);
  const absl::Duration term = kStart + kPeerGrace;
  EXPECT_EQ(core.Tick(term), SignalToSend::kTerm);
  EXPECT_EQ(core.Tick(term), SignalToSend::kNone);
  EXPECT_EQ(core.NextDeadline(), term + kFailureTermGrace);
  const absl::Duration killed = term + kFailureTermGrace;
  EXPECT_LT(killed, kStart + absl::Seconds(5)) << "what users are promised";
  EXPECT_EQ(core.Tick(killed), SignalToSend::kKill);
  EXPECT_EQ(core.Tick(killed), SignalToSend::kNone);
  EXPECT_EQ(core.Tick(killed + kKillInterval), SignalToSend::kKill);
  core.RankEnded(killed + kKillInterval, Killed(0, SIGKILL));
  core.GroupGone();
  const auto exit = core.Exit(0);
  EXPECT_EQ(exit.outcome, Outcome::kUserError);
  EXPECT_EQ(exit.reason, "BAD");
  EXPECT_EQ(exit.exit_code, run_dir::kExitUserError);
  EXPECT_EQ(exit.ranks[0].outcome, Outcome::kStopped);
}

TEST(SupervisorCore, TheCauseIsTheFirstFailureAndNotALostPeerThatWasReapedBeforeIt) {
  SupervisorCore core({0, 1, 2});
  core.RankEnded(kStart, Failed(0, Outcome::kTransient, "PEER_LOST"));
  core.RankEnded(kStart, Failed(2, Outcome::kHardware, "DEVICE_LOST"));
  core.RankEnded(kStart, Failed(1, Outcome::kTransient, "PEER_LOST"));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kHardware);
  EXPECT_EQ(core.Exit(0).reason, "DEVICE_LOST");
  EXPECT_EQ(core.Exit(0).failed_rank, 2);
}

// It may have to free a GPU's memory, while its peers have nothing to free.
TEST(SupervisorCore, ARankThatRefusesTheSpecIsTheCauseHoweverLateItEnds) {
  SupervisorCore core({0, 1});
  core.RankEnded(kStart, Failed(1, Outcome::kTransient, "PEER_LOST"));
  EXPECT_EQ(core.Tick(kStart + kPeerGrace), SignalToSend::kTerm);
  core.RankEnded(kStart + kPeerGrace, Failed(0, Outcome::kUserError, "INVALID_SPEC"));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kUserError);
  EXPECT_EQ(core.Exit(0).reason, "INVALID_SPEC");
  EXPECT_EQ(core.Exit(0).failed_rank, 0);

  // The peers were on another host, whose report made the server stop this one.
  SupervisorCore alone({0});
  alone.StopAsked(kStart, {"", absl::Seconds(3)});
  EXPECT_EQ(alone.Tick(kStart), SignalToSend::kTerm);
  alone.RankEnded(kStart, Failed(0, Outcome::kUserError, "INVALID_SPEC"));
  alone.GroupGone();
  EXPECT_EQ(alone.Exit(0).outcome, Outcome::kUserError);
}

TEST(SupervisorCore, OfRanksThatFailAlikeTheFirstOneIsNamed) {
  SupervisorCore core({0, 1, 2});
  core.RankEnded(kStart, Failed(2, Outcome::kHardware, "DEVICE_LOST"));
  core.RankEnded(kStart, Failed(1, Outcome::kHardware, "DEVICE_LOST"));
  core.RankEnded(kStart, Failed(0, Outcome::kHardware, "DEVICE_LOST"));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).failed_rank, 2);
}

TEST(SupervisorCore, AStopSendsTermAndKillsAfterItsGrace) {
  SupervisorCore core({0});
  core.StopAsked(kStart, {"cancelled", absl::Seconds(3)});
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kTerm);
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(3)), SignalToSend::kKill);
  core.RankEnded(kStart + absl::Seconds(3), Killed(0, SIGKILL));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kStopped);
  EXPECT_EQ(core.Exit(0).reason, "cancelled");
}

TEST(SupervisorCore, AnAttemptWhoseDeviceWasLostHasFailedByHardware) {
  SupervisorCore core({0, 1});
  core.StopAsked(kStart, {run_dir::kStopDeviceLost, absl::Seconds(3), "Xid 79", 1});
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kTerm);
  core.RankEnded(kStart, Failed(0, Outcome::kStopped, ""));
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(3)), SignalToSend::kKill);
  core.RankEnded(kStart + absl::Seconds(3), Killed(1, SIGKILL));
  core.GroupGone();
  const run_dir::AttemptExit exit = core.Exit(0);
  EXPECT_EQ(exit.outcome, Outcome::kHardware);
  EXPECT_EQ(exit.reason, run_dir::kReasonDeviceLost);
  EXPECT_EQ(exit.message, "Xid 79");
  EXPECT_EQ(exit.failed_rank, 1);
}

TEST(SupervisorCore, ALaterStopShortensTheGraceAndNeverLengthensIt) {
  SupervisorCore core({0});
  core.StopAsked(kStart, {"preempted", absl::Seconds(30)});
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kTerm);
  core.StopAsked(kStart, {"cancelled", absl::Seconds(60)});
  EXPECT_EQ(core.NextDeadline(), kStart + absl::Seconds(30));
  core.StopAsked(kStart, {"cancelled", absl::ZeroDuration()});
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kKill);
  core.RankEnded(kStart, Killed(0, SIGKILL));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).reason, "preempted");
}

TEST(SupervisorCore, AFailureBeforeAStopIsTheOutcomeAndOneAfterItIsNot) {
  SupervisorCore before({0, 1});
  before.RankEnded(kStart, Failed(0, Outcome::kUserError, "BAD"));
  before.StopAsked(kStart, {"cancelled", absl::Seconds(3)});
  EXPECT_EQ(before.Tick(kStart), SignalToSend::kTerm);
  before.RankEnded(kStart, Failed(1, Outcome::kStopped, ""));
  before.GroupGone();
  EXPECT_EQ(before.Exit(0).outcome, Outcome::kUserError);

  SupervisorCore after({0, 1});
  after.StopAsked(kStart, {"cancelled", absl::Seconds(3)});
  EXPECT_EQ(after.Tick(kStart), SignalToSend::kTerm);
  after.RankEnded(kStart, Failed(0, Outcome::kTransient, "PEER_LOST"));
  after.RankEnded(kStart, Failed(1, Outcome::kStopped, ""));
  after.GroupGone();
  EXPECT_EQ(after.Exit(0).outcome, Outcome::kStopped);
  EXPECT_EQ(after.Exit(0).reason, "cancelled");
}

TEST(SupervisorCore, RanksThatFinishTheirWorkAfterAStopHaveSucceeded) {
  SupervisorCore core({0});
  core.StopAsked(kStart, {"cancelled", absl::Seconds(3)});
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kTerm);
  core.RankEnded(kStart, Succeeded(0));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kSucceeded);
}

TEST(SupervisorCore, ARankThatStoppedUnaskedIsATransientFailure) {
  SupervisorCore core({0, 1});
  core.RankEnded(kStart, Failed(1, Outcome::kStopped, ""));
  core.RankEnded(kStart, Failed(0, Outcome::kTransient, "PEER_LOST"));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).failed_rank, 1);
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kTransient);
  EXPECT_EQ(core.Exit(0).reason, "STOPPED_UNASKED");
}

// The server relies on it when it gives the job to other devices.
TEST(SupervisorCore, NoGraceOutlivesTheLeaseByMoreThanItsOwn) {
  SupervisorCore core({0});
  const absl::Duration lease = kStart + absl::Seconds(15);
  core.LeaseSeen({lease});
  core.StopAsked(kStart + absl::Seconds(14), {"preempted", absl::Seconds(30)});
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(14)), SignalToSend::kTerm);
  EXPECT_EQ(core.NextDeadline(), lease + kDefaultTermGrace);
  EXPECT_EQ(core.Tick(lease + kDefaultTermGrace - absl::Seconds(1)), SignalToSend::kNone);
  // While the server answers, the whole grace counts.
  core.LeaseSeen({lease + absl::Seconds(10)});
  EXPECT_EQ(core.NextDeadline(), lease + absl::Seconds(10) + kDefaultTermGrace);
  core.LeaseSeen({lease + absl::Seconds(100)});
  EXPECT_EQ(core.NextDeadline(), kStart + absl::Seconds(44));
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(44)), SignalToSend::kKill);
}

TEST(SupervisorCore, AnExpiredLeaseStopsAndARenewedOneDoesNot) {
  SupervisorCore core({0});
  core.LeaseSeen({kStart + absl::Seconds(5)});
  EXPECT_EQ(core.NextDeadline(), kStart + absl::Seconds(5));
  core.LeaseSeen({kStart + absl::Seconds(9)});
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(5)), SignalToSend::kNone);
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(9)), SignalToSend::kTerm);
  // This is too late: a rank that has been stopped stays stopped.
  core.LeaseSeen({kStart + absl::Seconds(900)});
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(9) + kDefaultTermGrace), SignalToSend::kKill);
  core.RankEnded(kStart, Killed(0, SIGKILL));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kStopped);
  EXPECT_EQ(core.Exit(0).reason, kReasonLeaseExpired);
}

TEST(SupervisorCore, ALeaseOfZeroNeverExpires) {
  SupervisorCore core({0});
  core.LeaseSeen({});
  EXPECT_EQ(core.Tick(absl::Hours(1000000)), SignalToSend::kNone);
}

TEST(SupervisorCore, ProcessesThatOutliveAllRanksAreToldToGoAndKilled) {
  SupervisorCore core({0});
  core.RankEnded(kStart, Succeeded(0));
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kTerm);
  EXPECT_EQ(core.Tick(kStart + kStrayGrace), SignalToSend::kKill);
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kSucceeded);
}

run_dir::Progress Promises(absl::Duration silent_until, int64_t step = 120) {
  run_dir::Progress progress;
  progress.state = run_dir::Progress::State::kRunning;
  progress.step = step;
  progress.silent_until_boottime_us = absl::ToInt64Microseconds(silent_until);
  return progress;
}

RankEnd WaitedInVain(int rank, int for_rank) {
  RankEnd end = Failed(rank, Outcome::kTransient, "COLLECTIVE_TIMEOUT");
  end.result->message = absl::StrCat("rank ", rank, ": all_reduce 27");
  end.result->stuck_rank = for_rank;
  return end;
}

// Ticks once a second from `begin`, and returns when the first signal is due.
absl::Duration FirstSignal(SupervisorCore& core, absl::Duration begin, absl::Duration end) {
  for (absl::Duration now = begin; now <= end; now += kTickInterval) {
    if (core.Tick(now) != SignalToSend::kNone) return now;
  }
  return absl::InfiniteDuration();
}

TEST(SupervisorCore, ARankPastItsPromiseIsStuckAndNamedWithWhatItDoes) {
  SupervisorCore core({0, 1});
  core.ProgressSeen(kStart, 0, Promises(kStart + absl::Seconds(100)));
  core.ProgressSeen(kStart, 1, Promises(kStart + absl::Seconds(10)));
  EXPECT_EQ(core.NextDeadline(), kStart + absl::Seconds(10) + kPromiseMargin);
  const absl::Duration stuck = FirstSignal(core, kStart, kStart + absl::Seconds(60));
  EXPECT_EQ(stuck, kStart + absl::Seconds(10) + kPromiseMargin);
  EXPECT_THAT(core.TakeSuspects(), testing::ElementsAre(1));
  EXPECT_THAT(core.TakeSuspects(), testing::IsEmpty());
  core.SuspectSeen(1, "is stopped by a signal (T)");
  EXPECT_EQ(core.NextDeadline(), stuck + kFailureTermGrace);
  core.RankEnded(stuck, Failed(0, Outcome::kStopped, ""));
  EXPECT_EQ(core.Tick(stuck + kFailureTermGrace), SignalToSend::kKill);
  core.RankEnded(stuck + kFailureTermGrace, Killed(1, SIGKILL));
  core.GroupGone();
  const auto exit = core.Exit(0);
  EXPECT_EQ(exit.outcome, Outcome::kTransient);
  EXPECT_EQ(exit.reason, kReasonRankStuck);
  EXPECT_EQ(exit.failed_rank, 1);
  EXPECT_EQ(exit.message,
            "rank 1 is stuck after step 120 (running): no sign of life 2.0s after the time that it "
            "had promised; it is stopped by a signal (T)");
  EXPECT_EQ(exit.ranks[0].outcome, Outcome::kStopped);
  EXPECT_EQ(exit.ranks[1].reason, kReasonRankStuck);
}

TEST(SupervisorCore, APromiseThatIsRenewedOrWasNeverMadeIsNotBroken) {
  SupervisorCore core({0, 1});
  core.ProgressSeen(kStart, 1, Promises(absl::ZeroDuration()));
  for (absl::Duration now = kStart; now < kStart + absl::Hours(1); now += kTickInterval) {
    core.ProgressSeen(now, 0, Promises(now + absl::Seconds(2)));
    ASSERT_EQ(core.Tick(now), SignalToSend::kNone);
  }
}

TEST(SupervisorCore, ARankThatEndedHasKeptItsPromise) {
  SupervisorCore core({0, 1});
  core.ProgressSeen(kStart, 0, Promises(kStart + absl::Seconds(1)));
  core.RankEnded(kStart, Succeeded(0));
  core.ProgressSeen(kStart, 0, Promises(kStart + absl::Seconds(1)));
  EXPECT_EQ(FirstSignal(core, kStart, kStart + absl::Minutes(1)), absl::InfiniteDuration());
}

// The cause may be a closed lid, or a machine without a processor to spare.
TEST(SupervisorCore, TimeInWhichTheSupervisorWasNotRunDoesNotCount) {
  SupervisorCore core({0});
  core.ProgressSeen(kStart, 0, Promises(kStart + absl::Seconds(10)));
  EXPECT_EQ(FirstSignal(core, kStart, kStart + absl::Seconds(4)), absl::InfiniteDuration());
  const absl::Duration wake = kStart + absl::Hours(8);
  core.ProgressSeen(kStart, 0, Promises(kStart + absl::Seconds(10)));
  EXPECT_EQ(core.Tick(wake), SignalToSend::kNone);
  // This is the sum of the six seconds that were left when it fell asleep, and the margin.
  EXPECT_EQ(FirstSignal(core, wake, wake + absl::Minutes(1)),
            wake + absl::Seconds(6) + kPromiseMargin);
  EXPECT_EQ(core.Exit(0).reason, kReasonRankStuck);
}

TEST(SupervisorCore, OfRanksThatHangTogetherTheOneThatCameLeastFarIsNamed) {
  SupervisorCore core({0, 1, 2});
  core.ProgressSeen(kStart, 0, Promises(kStart, 120));
  core.ProgressSeen(kStart, 1, Promises(kStart + absl::Seconds(1), 119));
  core.ProgressSeen(kStart, 2, Promises(kStart, 120));
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(1) + kPromiseMargin), SignalToSend::kTerm);
  EXPECT_THAT(core.TakeSuspects(), testing::ElementsAre(1, 0, 2));
  EXPECT_EQ(core.Exit(0).failed_rank, 1);
}

TEST(SupervisorCore, AnAttemptThatIsStoppedIsNotWatched) {
  SupervisorCore core({0});
  core.ProgressSeen(kStart, 0, Promises(kStart + absl::Seconds(1)));
  core.StopAsked(kStart, {"preempted", absl::Seconds(30)});
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kTerm);
  EXPECT_EQ(FirstSignal(core, kStart + absl::Seconds(1), kStart + absl::Minutes(1)),
            kStart + absl::Seconds(30));
  // The rank had its grace, and people want to know why that was not enough.
  EXPECT_THAT(core.TakeSuspects(), testing::ElementsAre(0));
  core.SuspectSeen(0, "sleeps in futex (S)");
  core.RankEnded(kStart + absl::Seconds(30), Killed(0, SIGKILL));
  core.GroupGone();
  EXPECT_EQ(core.Exit(0).reason, "preempted");
  EXPECT_EQ(core.Exit(0).ranks[0].message, "rank 0 did not answer; it sleeps in futex (S)");
  EXPECT_EQ(core.Exit(0).outcome, Outcome::kStopped);
  EXPECT_EQ(
      core.Exit(0).message,
      "rank 0 did not answer; it sleeps in futex (S), and was killed when its grace was over");
}

// Its gang failed on another host, maybe because of this rank. Later nobody could find that out.
TEST(SupervisorCore, ARankThatHasBeenSilentForLongIsLookedAtBeforeItIsTold) {
  SupervisorCore core({0, 1, 2});
  const absl::Duration now = kStart + absl::Seconds(10);
  core.ProgressSeen(kStart, 0, Promises(kStart + absl::Seconds(13)));
  core.ProgressSeen(now - absl::Seconds(1), 1, Promises(now + absl::Seconds(12)));
  core.StopAsked(now, {"superseded", absl::Seconds(3)});
  EXPECT_EQ(core.Tick(now), SignalToSend::kTerm);
  EXPECT_THAT(core.TakeSuspects(), testing::ElementsAre(0));
}

TEST(SupervisorCore, AfterTheLeaseNothingComesBeforeTheKill) {
  SupervisorCore core({0});
  core.LeaseSeen({kStart});
  core.ProgressSeen(kStart - absl::Seconds(9), 0, Promises(kStart + absl::Seconds(1)));
  EXPECT_EQ(core.Tick(kStart), SignalToSend::kTerm);
  EXPECT_EQ(core.Tick(kStart + kDefaultTermGrace), SignalToSend::kKill);
  EXPECT_THAT(core.TakeSuspects(), testing::IsEmpty());
}

TEST(SupervisorCore, TheRankThatOthersWaitedForIsNamedAndNotTheOneThatSaidSo) {
  SupervisorCore core({0, 1, 2});
  core.RankEnded(kStart, Failed(2, Outcome::kTransient, "PEER_LOST"));
  core.RankEnded(kStart, WaitedInVain(0, 1));
  EXPECT_EQ(core.Tick(kStart + kPeerGrace), SignalToSend::kTerm);
  EXPECT_THAT(core.TakeSuspects(), testing::ElementsAre(1));
  core.SuspectSeen(1, "sleeps in read (S), in Prefetcher::Next");
  core.RankEnded(kStart + kPeerGrace, Killed(1, SIGTERM));
  core.GroupGone();
  const auto exit = core.Exit(0);
  EXPECT_EQ(exit.reason, kReasonRankStuck);
  EXPECT_EQ(exit.outcome, Outcome::kTransient);
  EXPECT_EQ(exit.failed_rank, 1);
  EXPECT_EQ(exit.message,
            "rank 1 is stuck: rank 0: all_reduce 27; it sleeps in read (S), in Prefetcher::Next");
  EXPECT_EQ(exit.ranks[0].reason, "COLLECTIVE_TIMEOUT");
  EXPECT_EQ(exit.ranks[1].reason, kReasonRankStuck);
}

// In a pipeline each rank waits for its neighbour.
TEST(SupervisorCore, AChainOfRanksThatWaitLeadsToTheOneThatDoesNot) {
  SupervisorCore core({0, 1, 2});
  core.RankEnded(kStart, WaitedInVain(0, 1));
  core.RankEnded(kStart, WaitedInVain(1, 2));
  EXPECT_EQ(core.Exit(0).failed_rank, 2);
  SupervisorCore circle({0, 1});
  circle.RankEnded(kStart, WaitedInVain(0, 1));
  circle.RankEnded(kStart, WaitedInVain(1, 0));
  EXPECT_EQ(circle.Exit(0).failed_rank, 0);
}

TEST(SupervisorCore, ARankOnAnotherHostIsNamedTooAndACrashIsNearerToTheCause) {
  SupervisorCore core({0, 1});
  core.RankEnded(kStart, WaitedInVain(0, 7));
  core.RankEnded(kStart, WaitedInVain(1, 7));
  EXPECT_EQ(core.Exit(0).failed_rank, 7);
  SupervisorCore crashed({0, 1});
  crashed.RankEnded(kStart, WaitedInVain(0, 1));
  crashed.RankEnded(kStart, Killed(1, SIGSEGV));
  EXPECT_EQ(crashed.Exit(0).reason, "KILLED_BY_SIGNAL");
  EXPECT_EQ(crashed.Exit(0).failed_rank, 1);
}

TEST(SupervisorCore, WhereTheTransportKnowsNoNameTheRankThatNoticedNothingIsIt) {
  SupervisorCore core({0, 1});
  core.RankEnded(kStart, WaitedInVain(0, -1));
  EXPECT_EQ(core.Exit(0).reason, "COLLECTIVE_TIMEOUT");
  EXPECT_EQ(core.Tick(kStart + kPeerGrace), SignalToSend::kTerm);
  core.SuspectSeen(1, "is running (R)");
  EXPECT_EQ(core.Exit(0).failed_rank, 1);
  EXPECT_EQ(core.Exit(0).reason, kReasonRankStuck);
}

TEST(SupervisorCore, OfALargeGangAFewSuspectsAreLookedAt) {
  std::vector<int> ranks(16);
  std::iota(ranks.begin(), ranks.end(), 0);
  SupervisorCore core(ranks);
  for (const int rank : ranks) core.ProgressSeen(kStart, rank, Promises(kStart));
  EXPECT_EQ(core.Tick(kStart + kPromiseMargin), SignalToSend::kTerm);
  EXPECT_EQ(core.TakeSuspects().size(), kSuspectsMax);
  EXPECT_EQ(core.Tick(kStart + kPromiseMargin + kFailureTermGrace), SignalToSend::kKill);
  EXPECT_THAT(core.TakeSuspects(), testing::IsEmpty());
}

TEST(SupervisorCore, AStopDuringThePeersGraceTakesEffectAtOnce) {
  SupervisorCore core({0, 1});
  core.RankEnded(kStart, Killed(0, SIGKILL));
  core.StopAsked(kStart + absl::Seconds(1), {"cancelled", absl::Seconds(2)});
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(1)), SignalToSend::kTerm);
  EXPECT_EQ(core.NextDeadline(), kStart + absl::Seconds(3));
}

}  // namespace
}  // namespace trainyard::supervisor
