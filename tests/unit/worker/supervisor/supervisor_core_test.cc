#include "worker/supervisor/supervisor_core.h"

#include <csignal>

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
  EXPECT_EQ(core.NextDeadline(), term + kDefaultTermGrace);
  const absl::Duration killed = term + kDefaultTermGrace;
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

// The server counts on it when it gives the job to other devices.
TEST(SupervisorCore, NoGraceOutlivesTheLeaseByMoreThanItsOwn) {
  SupervisorCore core({0});
  const absl::Duration lease = kStart + absl::Seconds(15);
  core.LeaseSeen({lease});
  core.StopAsked(kStart + absl::Seconds(14), {"preempted", absl::Seconds(30)});
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(14)), SignalToSend::kTerm);
  EXPECT_EQ(core.NextDeadline(), lease + kDefaultTermGrace);
  EXPECT_EQ(core.Tick(lease + kDefaultTermGrace - absl::Seconds(1)), SignalToSend::kNone);
  // With news from the server the whole grace counts.
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
  // Too late: what has been stopped stays stopped.
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

TEST(SupervisorCore, AStopDuringThePeersGraceTakesEffectAtOnce) {
  SupervisorCore core({0, 1});
  core.RankEnded(kStart, Killed(0, SIGKILL));
  core.StopAsked(kStart + absl::Seconds(1), {"cancelled", absl::Seconds(2)});
  EXPECT_EQ(core.Tick(kStart + absl::Seconds(1)), SignalToSend::kTerm);
  EXPECT_EQ(core.NextDeadline(), kStart + absl::Seconds(3));
}

}  // namespace
}  // namespace trainyard::supervisor
