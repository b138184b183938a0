// Tests the turn of the daemon, step by step, over run directories in memory.
#include "worker/agent/daemon_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/testing/manual_clock.h"

namespace trainyard::agent {
namespace {

constexpr AttemptId kId{{12}, 1};

// Records what the daemon does. A test sets what the daemon sees.
class FakeRunDirs : public RunDirs {
 public:
  std::vector<std::string> done;  // since the last turn
  std::vector<Attempt> adopted;
  Sight sight;
  absl::Status prepared;
  absl::Status launched;
  Changes changes;

  std::vector<Attempt> Adopt() override { return adopted; }
  Changes TakeChanges() override { return std::exchange(changes, {}); }
  Sight Look(AttemptId) override { return sight; }
  void Read(Attempt&) override {}
  absl::StatusOr<std::string> RendezvousValue(AttemptId, const std::string& key) override {
    return key + "-value";
  }
  absl::Status Prepare(AttemptId, const DesiredAttempt&) override {
    return Do("prepare", prepared);
  }
  void Fetch(AttemptId, const DesiredAttempt& wanted) override {
    const auto& source = wanted.resume_from.has_value() ? wanted.resume_from : wanted.init_from;
    (void)Do("fetch " + (source.has_value() ? source->name : wanted.code_digest));
  }
  void FetchSecrets(AttemptId, int64_t) override { (void)Do("fetch secrets"); }
  void CancelFetch(AttemptId) override { (void)Do("cancel"); }
  absl::Status Assign(Attempt& attempt, const DesiredAttempt& wanted, absl::Duration) override {
    attempt.ranks = wanted.ranks;
    return Do("assign");
  }
  absl::Status Launch(const Attempt&) override { return Do("launch", launched); }
  absl::Status RecordUnstarted(AttemptId, const absl::Status&) override { return Do("unstarted"); }
  absl::Status RecordDeath(AttemptId) override { return Do("death"); }
  absl::Status RequestStop(AttemptId, const run_dir::StopRequest& stop) override {
    return Do("stop " + stop.reason);
  }
  absl::Status RenewLease(AttemptId, absl::Duration) override { return Do("lease"); }
  absl::Status Publish(AttemptId, const std::string& key, const std::string&) override {
    return Do("publish " + key);
  }
  absl::Status AskCheckpoint(AttemptId, int64_t) override { return Do("ask"); }
  absl::Status PruneCheckpoint(AttemptId, int64_t step) override {
    return Do(absl::StrCat("prune ", step));
  }
  void Discard(AttemptId) override { (void)Do("discard"); }
  absl::Status Remove(AttemptId) override { return Do("remove"); }

 private:
  absl::Status Do(std::string what, absl::Status status = absl::OkStatus()) {
    done.push_back(std::move(what));
    return status;
  }
};

class DaemonCoreTest : public ::testing::Test {
 protected:
  static Device MakeDevice() {
    Device device;
    device.name = "cpu-0";
    device.type = "cpu";
    return device;
  }
  void Want(DesiredAttempt::Action action, const std::string& resume_from = "") {
    DesiredAttempt wanted;
    wanted.fencing_token = 7;
    wanted.action = action;
    wanted.keep = absl::Minutes(10);
    wanted.world_size = 1;
    wanted.ranks = {{0, device_}};
    wanted.stop = {"cancelled", absl::Seconds(3)};
    if (!resume_from.empty()) wanted.resume_from = ResumeSource{resume_from, 10, {}};
    Desired desired;
    desired.serial = ++serial_;
    desired.lease_expire_uptime = clock_.Uptime() + absl::Seconds(15);
    desired.attempts[kId] = wanted;
    core_.Wants(std::move(desired));
  }
  // Makes a whole turn, and returns what the daemon did in it.
  std::vector<std::string> Turn() {
    dirs_.done.clear();
    core_.BeginTurn();
    while (core_.Step()) {
    }
    report_ = core_.EndTurn();
    return dirs_.done;
  }

  testing::ManualClock clock_;
  FakeRunDirs dirs_;
  std::string device_ = "cpu-0";
  DaemonCore core_{dirs_, {MakeDevice()}, clock_};
  int64_t serial_ = 0;
  Report report_;
};

TEST_F(DaemonCoreTest, BeginsAnAttemptInStepsThatMayBeFarApart) {
  Want(DesiredAttempt::Action::kRun);
  core_.BeginTurn();
  EXPECT_TRUE(core_.Step());  // decides
  EXPECT_THAT(dirs_.done, ::testing::IsEmpty());
  EXPECT_TRUE(core_.Step());
  EXPECT_THAT(dirs_.done, ::testing::ElementsAre("prepare"));
  EXPECT_TRUE(core_.Step());
  EXPECT_THAT(dirs_.done, ::testing::ElementsAre("prepare", "assign"));
  EXPECT_FALSE(core_.Step());
  EXPECT_THAT(dirs_.done, ::testing::ElementsAre("prepare", "assign", "launch"));
  EXPECT_EQ(core_.EndTurn().desired_serial, 1);
}

TEST_F(DaemonCoreTest, WaitsForTheCheckpointFromWhichItStarts) {
  Want(DesiredAttempt::Action::kRun, "jobs/1/checkpoints/10");
  EXPECT_THAT(Turn(), ::testing::ElementsAre("prepare", "fetch jobs/1/checkpoints/10"));
  EXPECT_THAT(Turn(), ::testing::IsEmpty());
  core_.Fetched(kId, absl::OkStatus());
  // The attempt existed before this turn, so its lease is renewed like that of any other.
  EXPECT_THAT(Turn(), ::testing::ElementsAre("assign", "launch", "lease"));
}

TEST_F(DaemonCoreTest, AFetchThatFailedIsAFailureOfTheAttempt) {
  Want(DesiredAttempt::Action::kRun, "jobs/1/checkpoints/10");
  Turn();
  core_.Fetched(kId, absl::DataLossError("damaged"));
  EXPECT_THAT(Turn(), ::testing::ElementsAre("discard"));
  ASSERT_EQ(report_.attempts.size(), 1u);
  EXPECT_EQ(report_.attempts[0].exit->reason, "START_FAILED");
}

TEST_F(DaemonCoreTest, WhatIsStoppedWhileItIsFetchedCountsAsStopped) {
  Want(DesiredAttempt::Action::kRun, "jobs/1/checkpoints/10");
  Turn();
  Want(DesiredAttempt::Action::kStop);
  EXPECT_THAT(Turn(), ::testing::ElementsAre("cancel", "discard"));
  EXPECT_EQ(report_.attempts[0].exit->outcome, run_dir::Outcome::kStopped);
}

TEST_F(DaemonCoreTest, AFullDiskIsTriedAgainAndThenGivenUp) {
  dirs_.prepared = error::DiskFull("/state");
  Want(DesiredAttempt::Action::kRun);
  int tries = 0;
  for (int turn = 0; turn < 20 && report_.attempts.empty(); ++turn) {
    for (const std::string& what : Turn()) tries += what == "prepare" ? 1 : 0;
    EXPECT_EQ(core_.is_retrying(), report_.attempts.empty());
    clock_.Advance(absl::Milliseconds(100));
  }
  EXPECT_EQ(tries, 3);
  ASSERT_EQ(report_.attempts.size(), 1u);
  EXPECT_EQ(report_.attempts[0].exit->reason, "DISK_FULL");
  EXPECT_EQ(report_.attempts[0].exit->outcome, run_dir::Outcome::kTransient);
}

TEST_F(DaemonCoreTest, ADeviceThatIsNotHereIsAFailureOfTheHardwareAtOnce) {
  device_ = "gpu-7";
  Want(DesiredAttempt::Action::kRun);
  EXPECT_THAT(Turn(), ::testing::ElementsAre("prepare", "discard"));
  EXPECT_EQ(report_.attempts[0].exit->reason, "DEVICE_NOT_FOUND");
  EXPECT_EQ(report_.attempts[0].exit->outcome, run_dir::Outcome::kHardware);
}

TEST_F(DaemonCoreTest, ASupervisorHasSecondsToTakeItsLockAndThreeTries) {
  Want(DesiredAttempt::Action::kRun);
  Turn();
  int launches = 0;
  int unstarted = 0;
  for (int second = 0; second < 30 && unstarted == 0; ++second) {
    clock_.Advance(absl::Seconds(1));
    Want(DesiredAttempt::Action::kRun);
    for (const std::string& what : Turn()) {
      launches += what == "launch" ? 1 : 0;
      unstarted += what == "unstarted" ? 1 : 0;
      if (what == "launch") {
        EXPECT_GE(second, 4);
      }
    }
  }
  EXPECT_EQ(launches, 2);  // beside the first
  EXPECT_EQ(unstarted, 1);
}

TEST_F(DaemonCoreTest, ASupervisorThatEndedWithoutHavingBegunIsLaunchedAgainAtOnce) {
  Want(DesiredAttempt::Action::kRun);
  Turn();
  dirs_.changes.changed = {kId};
  dirs_.changes.ended_early = {kId};
  EXPECT_THAT(Turn(), ::testing::Contains("launch"));
}

TEST_F(DaemonCoreTest, AdoptsWhatRunsAndRemovesItOnceItIsDrained) {
  Attempt found;
  found.id = kId;
  found.is_assigned = true;
  found.local.fencing_token = 7;
  dirs_.adopted = {found};
  dirs_.sight = {.is_supervised = true, .has_supervisor_record = true, .exit = {}};
  core_.Adopt();
  Turn();
  ASSERT_EQ(report_.attempts.size(), 1u);
  EXPECT_EQ(report_.attempts[0].state, ReportedAttempt::State::kStarting);

  dirs_.sight.exit.emplace();
  dirs_.changes.any_lost = true;
  Want(DesiredAttempt::Action::kRemove);
  EXPECT_THAT(Turn(), ::testing::IsEmpty());
  EXPECT_FALSE(report_.attempts[0].drained);
  core_.Uploaded(kId, {}, /*is_all_sent=*/true);
  EXPECT_THAT(Turn(), ::testing::ElementsAre("remove"));
  EXPECT_THAT(report_.attempts, ::testing::IsEmpty());
}

TEST_F(DaemonCoreTest, LooksOftenWhereNoChangeIsTold) {
  EXPECT_EQ(core_.NextTurn(), absl::Seconds(2));
  Want(DesiredAttempt::Action::kRun);
  Turn();
  Turn();
  EXPECT_LE(core_.NextTurn(), absl::Milliseconds(50));
}

}  // namespace
}  // namespace trainyard::agent
