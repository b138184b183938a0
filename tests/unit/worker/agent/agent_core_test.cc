// Tests the decisions of the daemon, by phase and by order.
#include "worker/agent/agent_core.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/report.h"

namespace trainyard::agent {
namespace {

using Kind = Action::Kind;
using Wanted = DesiredAttempt::Action;

constexpr AttemptId kId{{12}, 1};
constexpr absl::Duration kNow = absl::Seconds(1000);
constexpr absl::Duration kKeep = absl::Minutes(10);
constexpr absl::Duration kLeaseLeft = absl::Seconds(14);  // the report was sent a second ago
constexpr Phase kPhases[] = {Phase::kPreparing, Phase::kIncomplete, Phase::kPrepared,
                             Phase::kLaunching, Phase::kAlive,      Phase::kOrphaned,
                             Phase::kExited};

DesiredAttempt Want(Wanted action, int64_t token = 7) {
  DesiredAttempt wanted;
  wanted.action = action;
  wanted.fencing_token = token;
  wanted.keep = kKeep;
  wanted.stop = {"cancelled", absl::Seconds(3)};
  return wanted;
}

Desired Answer(std::map<AttemptId, DesiredAttempt> attempts) {
  Desired desired;
  desired.lease_expire_uptime = kNow + kLeaseLeft;
  desired.attempts = std::move(attempts);
  return desired;
}

LocalAttempt Local(Phase phase, int64_t token = 7) {
  LocalAttempt local;
  local.phase = phase;
  local.fencing_token = token;
  local.lease_expire = kNow + kLeaseLeft + kKeep;  // as fresh as the answer
  return local;
}

std::vector<Kind> Kinds(const std::optional<Desired>& desired,
                        const std::map<AttemptId, LocalAttempt>& local) {
  std::vector<Kind> kinds;
  for (const Action& action : Reconcile(desired, local, kNow)) {
    EXPECT_EQ(action.attempt, kId);
    kinds.push_back(action.kind);
  }
  return kinds;
}

TEST(Reconcile, DecidesEveryPhaseUnderEveryOrder) {
  struct Row {
    Phase phase;
    std::vector<Kind> run, stop, remove;
  };
  const Row rows[] = {
      {Phase::kPreparing, {}, {Kind::kAbandon}, {Kind::kAbandon}},
      {Phase::kIncomplete, {Kind::kBegin}, {Kind::kAbandon}, {Kind::kAbandon}},
      {Phase::kPrepared,
       {Kind::kLaunch},
       {Kind::kStop, Kind::kLaunch},
       {Kind::kStop, Kind::kLaunch}},
      {Phase::kLaunching, {}, {Kind::kStop}, {Kind::kStop}},
      {Phase::kAlive, {}, {Kind::kStop}, {Kind::kStop}},
      {Phase::kOrphaned, {Kind::kRecordDeath}, {Kind::kRecordDeath}, {Kind::kRecordDeath}},
      {Phase::kExited, {}, {}, {}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(static_cast<int>(row.phase));
    const std::map<AttemptId, LocalAttempt> local = {{kId, Local(row.phase)}};
    EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kRun)}}), local), row.run);
    EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kStop)}}), local), row.stop);
    EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kRemove)}}), local), row.remove);
    EXPECT_EQ(Kinds(Answer({}), local), row.remove) << "not listed";
  }
}

TEST(Reconcile, BeginsWhatIsWantedAndNotHere) {
  EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kRun)}}), {}), std::vector<Kind>{Kind::kBegin});
  EXPECT_TRUE(Kinds(Answer({{kId, Want(Wanted::kStop)}}), {}).empty());
  EXPECT_TRUE(Kinds(Answer({{kId, Want(Wanted::kRemove)}}), {}).empty());
}

TEST(Reconcile, BeginsNothingAfterTheWorkersLeaseHasRunOut) {
  Desired desired = Answer({{kId, Want(Wanted::kRun)}});
  desired.lease_expire_uptime = kNow;
  EXPECT_TRUE(Kinds(desired, {}).empty());
  EXPECT_TRUE(Kinds(desired, {{kId, Local(Phase::kIncomplete)}}).empty());
  LocalAttempt prepared = Local(Phase::kPrepared);
  prepared.lease_expire = kNow + kKeep;
  EXPECT_TRUE(Kinds(desired, {{kId, prepared}}).empty());
  // It does not affect what runs.
  LocalAttempt alive = Local(Phase::kAlive);
  alive.lease_expire = kNow + kKeep;
  EXPECT_TRUE(Kinds(desired, {{kId, alive}}).empty());
}

TEST(Reconcile, WithoutAWordFromTheServerOnlyDeathsAreRecorded) {
  for (const Phase phase : kPhases) {
    const std::vector<Kind> expected =
        phase == Phase::kOrphaned ? std::vector<Kind>{Kind::kRecordDeath} : std::vector<Kind>{};
    EXPECT_EQ(Kinds(std::nullopt, {{kId, Local(phase)}}), expected) << static_cast<int>(phase);
  }
}

TEST(Reconcile, RemovesOnlyWhatIsDrained) {
  LocalAttempt local = Local(Phase::kExited);
  local.drained = true;
  const std::vector<Kind> remove = {Kind::kRemove};
  EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kRemove)}}), {{kId, local}}), remove);
  EXPECT_EQ(Kinds(Answer({}), {{kId, local}}), remove);
  EXPECT_TRUE(Kinds(Answer({{kId, Want(Wanted::kRun)}}), {{kId, local}}).empty());
  EXPECT_TRUE(Kinds(Answer({{kId, Want(Wanted::kStop)}}), {{kId, local}}).empty());
}

TEST(Reconcile, AnOlderTokenThanTheRunningOneIsIgnored) {
  for (const Wanted action : {Wanted::kRun, Wanted::kStop, Wanted::kRemove}) {
    for (const Phase phase : {Phase::kPreparing, Phase::kPrepared, Phase::kAlive, Phase::kExited}) {
      LocalAttempt local = Local(phase, 8);
      local.drained = true;
      EXPECT_TRUE(Kinds(Answer({{kId, Want(action, 7)}}), {{kId, local}}).empty());
    }
  }
}

TEST(Reconcile, ANewerTokenStopsWhatRunsUnderTheOldOne) {
  const Desired desired = Answer({{kId, Want(Wanted::kRun, 9)}});
  const auto actions = Reconcile(desired, {{kId, Local(Phase::kAlive, 7)}}, kNow);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kStop);
  EXPECT_EQ(actions[0].stop.reason, kUnlistedReason);
  LocalAttempt ended = Local(Phase::kExited, 7);
  ended.drained = true;
  EXPECT_EQ(Kinds(desired, {{kId, ended}}), std::vector<Kind>{Kind::kRemove});
}

TEST(Reconcile, WhatIsIncompleteIsBegunUnderAnyToken) {
  EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kRun, 9)}}), {{kId, Local(Phase::kIncomplete, 0)}}),
            std::vector<Kind>{Kind::kBegin});
}

TEST(Reconcile, RenewsTheLeaseFromTheMomentTheReportWasSent) {
  LocalAttempt local = Local(Phase::kAlive);
  local.lease_expire -= absl::Seconds(5);
  const auto actions = Reconcile(Answer({{kId, Want(Wanted::kRun)}}), {{kId, local}}, kNow);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kRenewLease);
  EXPECT_EQ(actions[0].lease_expire, kNow + kLeaseLeft + kKeep);
  // The same answer does not renew a lease twice, however late it is.
  local.lease_expire = actions[0].lease_expire;
  EXPECT_TRUE(Reconcile(Answer({{kId, Want(Wanted::kRun)}}), {{kId, local}}, kNow + absl::Hours(1))
                  .empty());
}

// Uptime starts again with each boot. A lease from before the boot would let ranks run for days.
TEST(Reconcile, ALeaseOfAnEarlierBootIsReplacedBeforeTheLaunch) {
  LocalAttempt local = Local(Phase::kPrepared);
  local.lease_expire = kNow + absl::Hours(100);
  const auto actions = Reconcile(Answer({{kId, Want(Wanted::kRun)}}), {{kId, local}}, kNow);
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(actions[0].kind, Kind::kRenewLease);
  EXPECT_EQ(actions[0].lease_expire, kNow + kLeaseLeft + kKeep);
  EXPECT_EQ(actions[1].kind, Kind::kLaunch);
}

// Otherwise the end of a short lease would shorten the time that it has to write its checkpoint.
TEST(Reconcile, AnAttemptThatIsStoppedKeepsItsLease) {
  LocalAttempt local = Local(Phase::kAlive);
  local.lease_expire = kNow;
  EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kStop)}}), {{kId, local}}),
            (std::vector<Kind>{Kind::kRenewLease, Kind::kStop}));
  EXPECT_EQ(Kinds(Answer({}), {{kId, local}}), std::vector<Kind>{Kind::kStop}) << "not listed";
}

TEST(Reconcile, AJobThatKeepsNothingHasTheWorkersLeaseAllTheSame) {
  DesiredAttempt wanted = Want(Wanted::kRun);
  wanted.keep = absl::ZeroDuration();
  EXPECT_EQ(LeaseOf(Answer({}), wanted), kNow + kLeaseLeft);
}

TEST(Reconcile, WritesAStopAgainOnlyWhereItShortensTheGrace) {
  LocalAttempt local = Local(Phase::kAlive);
  local.stop = run_dir::StopRequest{"preempted", absl::Seconds(30)};
  EXPECT_EQ(Kinds(Answer({{kId, Want(Wanted::kStop)}}), {{kId, local}}),
            std::vector<Kind>{Kind::kStop});
  local.stop->grace = absl::Seconds(3);
  EXPECT_TRUE(Kinds(Answer({{kId, Want(Wanted::kStop)}}), {{kId, local}}).empty());
}

TEST(Reconcile, PassesOnNewRendezvousKeysOnce) {
  DesiredAttempt wanted = Want(Wanted::kRun);
  wanted.rendezvous = {{"a", "1"}, {"b", "2"}};
  LocalAttempt local = Local(Phase::kAlive);
  local.rendezvous = {"a"};
  const auto actions = Reconcile(Answer({{kId, wanted}}), {{kId, local}}, kNow);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kPublish);
  EXPECT_EQ(actions[0].key, "b");
  local.rendezvous = {"a", "b", "own"};
  EXPECT_TRUE(Reconcile(Answer({{kId, wanted}}), {{kId, local}}, kNow).empty());
}

TEST(Reconcile, AsksForACheckpointOnceForEachLargerNumber) {
  DesiredAttempt wanted = Want(Wanted::kRun);
  wanted.checkpoint_request = 2;
  LocalAttempt local = Local(Phase::kAlive);
  local.checkpoint_request = 1;
  const auto actions = Reconcile(Answer({{kId, wanted}}), {{kId, local}}, kNow);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kAskCheckpoint);
  EXPECT_EQ(actions[0].number, 2);
  for (const int64_t there : {2, 3}) {
    local.checkpoint_request = there;
    EXPECT_TRUE(Reconcile(Answer({{kId, wanted}}), {{kId, local}}, kNow).empty()) << there;
  }
}

TEST(Reconcile, ARequestForACheckpointReachesOnlyRanksThatRunOrWill) {
  DesiredAttempt wanted = Want(Wanted::kRun);
  wanted.checkpoint_request = 1;
  const auto kinds = [&wanted](Phase phase) {
    return Kinds(Answer({{kId, wanted}}), {{kId, Local(phase)}});
  };
  EXPECT_EQ(kinds(Phase::kPrepared), (std::vector<Kind>{Kind::kAskCheckpoint, Kind::kLaunch}));
  EXPECT_EQ(kinds(Phase::kLaunching), std::vector<Kind>{Kind::kAskCheckpoint});
  EXPECT_TRUE(kinds(Phase::kPreparing).empty());
  EXPECT_TRUE(kinds(Phase::kExited).empty());
  wanted.action = Wanted::kStop;
  EXPECT_EQ(kinds(Phase::kAlive), std::vector<Kind>{Kind::kStop});
}

TEST(Reconcile, PrunesCommittedCheckpointsOlderThanTheNewestTwo) {
  LocalAttempt local = Local(Phase::kAlive);
  local.checkpoints = {10, 20, 30, 40};
  local.committed = {20, 30, 40};
  const auto actions = Reconcile(Answer({{kId, Want(Wanted::kRun)}}), {{kId, local}}, kNow);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kPruneCheckpoint);
  EXPECT_EQ(actions[0].number, 20);
  local.checkpoints = {30, 40};
  EXPECT_TRUE(Reconcile(Answer({{kId, Want(Wanted::kRun)}}), {{kId, local}}, kNow).empty());
}

TEST(Reconcile, DecidesForEachAttemptByItself) {
  const AttemptId second{{12}, 2};
  const AttemptId third{{13}, 1};
  const auto actions =
      Reconcile(Answer({{second, Want(Wanted::kRun)}, {third, Want(Wanted::kStop)}}),
                {{kId, Local(Phase::kAlive)}, {third, Local(Phase::kAlive)}}, kNow);
  ASSERT_EQ(actions.size(), 3u);
  EXPECT_EQ(actions[0].attempt, kId);
  EXPECT_EQ(actions[0].kind, Kind::kStop);
  EXPECT_EQ(actions[1].attempt, second);
  EXPECT_EQ(actions[1].kind, Kind::kBegin);
  EXPECT_EQ(actions[2].attempt, third);
  EXPECT_EQ(actions[2].stop.reason, "cancelled");
}

TEST(IsUrgent, StepsAndMetricsCanWaitStatesAndEndsCannot) {
  Report before;
  ReportedAttempt attempt;
  attempt.id = kId;
  attempt.state = ReportedAttempt::State::kRunning;
  attempt.progress.emplace();
  attempt.progress->step = 5;
  before.attempts = {attempt};
  Report after = before;
  after.attempts[0].progress->step = 6;
  after.attempts[0].metrics["train.loss"] = 1;
  after.desired_serial = 9;
  EXPECT_FALSE(IsUrgent(before, after));
  after.attempts[0].state = ReportedAttempt::State::kExited;
  EXPECT_TRUE(IsUrgent(before, after));
  after = before;
  after.attempts[0].checkpoint_step = 5;
  EXPECT_TRUE(IsUrgent(before, after));
  after = before;
  after.attempts[0].progress->data_digest = "x";
  EXPECT_TRUE(IsUrgent(before, after));
  after.attempts.clear();
  EXPECT_TRUE(IsUrgent(before, after));
}

TEST(IsUrgent, WhatDevicesDoCanWaitTheirHealthCannot) {
  const Report before;
  Report busy;
  busy.changed_devices.resize(1);
  busy.changed_devices[0].usage = DeviceUsage{.utilization = 0.5};
  EXPECT_FALSE(IsUrgent(before, busy)) << "all is as it was registered";
  Report idle = busy;
  idle.changed_devices[0].usage->utilization = 0;
  EXPECT_FALSE(IsUrgent(busy, idle));
  Report sick = busy;
  sick.changed_devices[0].health = Device::Health::kQuarantined;
  EXPECT_TRUE(IsUrgent(busy, sick));
  EXPECT_TRUE(IsUrgent(sick, busy));
}

}  // namespace
}  // namespace trainyard::agent
