// Tests the whole daemon against a server in this process, with the real supervisor and shell
// scripts as ranks.
#include "worker/agent/agent.h"
#include "common/base/processes.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/rpc/channel.h"
#include "fake_agent_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/supervisor_lock.h"

namespace trainyard::agent {
namespace {

constexpr char kName[] = "jobs/12/attempts/1";

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    StartServer();
    auto channel = rpc::MakeChannel("unix:" + JoinPath(folder_, "s"));
    TY_CHECK_OK(channel.status());
    stub_ = v1::AgentService::NewStub(*channel);
    dir_ = run_dir::RunDir(run_dir::AttemptDirectory(folder_, 12, 1));
  }

  ~AgentTest() override {
    agent_.reset();
    unsetenv("FAKE_NVML_STATE");
    // Supervisors are not children of the test; they are found by their run directories.
    for (const ProcessInfo& process : ListProcesses()) {
      const std::string of = ProcessVariable(process.pid, "TRAINYARD_ATTEMPT_DIR");
      if (of.starts_with(folder_)) kill(static_cast<pid_t>(process.pid), SIGKILL);
    }
    // A supervisor without ranks has nothing left to do.
    (void)testing::WaitUntil([this] { return !run_dir::IsSupervised(dir_).value_or(false); },
                             absl::Seconds(10));
  }

  void StartServer() { server_.emplace(state_, JoinPath(folder_, "s")); }

  void StartAgent(Nvml* nvml = nullptr) {
    AgentOptions options;
    options.settings.state_dir = folder_;
    options.settings.dataset_dir = "/data";
    options.settings.interface = "lo";
    options.settings.address = address_;
    options.settings.worker = "w";
    options.settings.programs = {testing::BinaryPath("trainyard-supervisor"),
                                 JoinPath(folder_, "trainer.sh")};
    options.identity = {"w", "uid", "host", "127.0.0.1", {{"zone", "a"}}};
    options.devices.resize(2);
    for (int i = 0; i < 2; ++i) {
      options.devices[static_cast<size_t>(i)].name = absl::StrCat("cpu-", i);
      options.devices[static_cast<size_t>(i)].type = "cpu";
    }
    if (nvml != nullptr) options.devices = GpuDevices(*nvml->ListGpus());
    options.device_look_interval = absl::Milliseconds(20);
    agent_ =
        std::make_unique<Agent>(std::move(options), *stub_, nvml, *Clock::Real(), *Rng::Real());
    agent_->Start();
  }

  // $R is the rank, $D the run directory, $S the folder of the test.
  void Trainer(const std::string& body) {
    TY_CHECK_OK(WriteFileAtomically(
        JoinPath(folder_, "trainer.sh"),
        absl::StrCat(
            "#!/bin/sh\nS=", folder_,
            "\nD=$TRAINYARD_RUN_DIR\nR=$TRAINYARD_RANK\n"
            "progress() { echo \"{\\\"state\\\":\\\"$1\\\",\\\"step\\\":$2,"
            "\\\"total_steps\\\":10}\" > $D/p.$R; mv $D/p.$R $D/ranks/$R/progress.json; }\n"
            "await() { while [ ! -e $S/$1 ]; do sleep 0.02; done; }\n",
            body, "\n"),
        0755));
  }

  v1::DesiredAttempt Run(int ranks) {
    v1::DesiredAttempt desired;
    desired.set_attempt(kName);
    desired.set_fencing_token(7);
    desired.set_action(v1::DesiredAttempt::RUN);
    desired.set_world_size(ranks);
    desired.mutable_spec()->set_name("test");
    desired.mutable_spec()->mutable_on_disconnect()->mutable_keep()->set_seconds(600);
    for (int rank = 0; rank < ranks; ++rank) {
      v1::DesiredRank& item = *desired.add_ranks();
      item.set_rank(rank);
      item.set_device(absl::StrCat("cpu-", rank));
    }
    return desired;
  }
  v1::DesiredAttempt Order(v1::DesiredAttempt::Action action) {
    v1::DesiredAttempt desired;
    desired.set_attempt(kName);
    desired.set_fencing_token(7);
    desired.set_action(action);
    desired.mutable_stop()->set_reason(v1::STOP_REASON_CANCEL);
    desired.mutable_stop()->mutable_grace()->set_seconds(20);
    return desired;
  }

  void Touch(const std::string& name) {
    TY_CHECK_OK(WriteFileAtomically(JoinPath(folder_, name), ""));
  }

  // The attempt as last reported; under state_.mutex.
  const v1::ObservedAttempt* Seen() {
    for (const v1::ObservedAttempt& attempt : state_.observed) {
      if (attempt.attempt() == kName) return &attempt;
    }
    return nullptr;
  }
  bool WaitForState(v1::ObservedState wanted) {
    return state_.Wait([&] { return Seen() != nullptr && Seen()->state() == wanted; });
  }
  bool WaitForDrained() {
    return state_.Wait([&] { return Seen() != nullptr && Seen()->drained(); });
  }
  v1::ObservedAttempt Last() {
    absl::MutexLock lock(&state_.mutex);
    return Seen() == nullptr ? v1::ObservedAttempt() : *Seen();
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
  FakeServerState state_;
  std::optional<FakeAgentServer> server_;
  std::string address_ = "127.0.0.1";  // for gangs over several hosts
  std::unique_ptr<v1::AgentService::Stub> stub_;
  run_dir::RunDir dir_{""};
  std::unique_ptr<Nvml> nvml_;  // if a test has GPUs
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, RunsAnAttemptFromOrderToRemoval) {
  Trainer(R"(echo "rank $R"; progress running 1
echo '{"step":1,"name":"train.loss","value":0.25,"time":1}' >> $D/ranks/$R/metrics.jsonl
await go; progress finished 10
echo '{"outcome":"succeeded","reason":"","message":"","step":10,"metrics":{"test.accuracy":0.5}}' > $D/ranks/$R/result.json)");
  StartAgent();
  state_.Want(Run(2));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[{kName, 0}].size() == 1; }));
  ASSERT_TRUE(state_.Wait([&] { return state_.logs[{kName, 1}] == "rank 1\n"; }));
  const auto lease = run_dir::ReadLease(dir_);
  ASSERT_TRUE(lease.ok());
  EXPECT_GT(lease->expire_uptime, Clock::Real()->Uptime() + absl::Minutes(9));
  Touch("go");
  ASSERT_TRUE(WaitForDrained());
  const v1::ObservedAttempt last = Last();
  EXPECT_EQ(last.outcome().kind(), v1::AttemptOutcome::SUCCEEDED);
  EXPECT_EQ(last.outcome().step(), 10);
  EXPECT_EQ(last.progress().total_steps(), 10);
  EXPECT_EQ(last.metrics().at("test.accuracy"), 0.5);
  EXPECT_EQ(last.metrics().at("train.loss"), 0.25);
  EXPECT_TRUE(FileExists(dir_.root()));
  state_.Want(Order(v1::DesiredAttempt::REMOVE));
  ASSERT_TRUE(state_.Wait([&] { return state_.observed.empty(); }));
  EXPECT_FALSE(FileExists(dir_.root()));
}

TEST_F(AgentTest, StopsWhatTheServerWantsStopped) {
  Trainer("trap 'exit 15' TERM; progress running 1; while true; do sleep 0.02; done");
  StartAgent();
  state_.Want(Run(1));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  state_.Want(Order(v1::DesiredAttempt::STOP));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_EXITED));
  EXPECT_EQ(Last().outcome().kind(), v1::AttemptOutcome::STOPPED);
  EXPECT_EQ(Last().outcome().failure().reason(), "CANCELLED");
}

TEST_F(AgentTest, WhatIsNoLongerListedIsStoppedAndRemoved) {
  Trainer("trap 'exit 15' TERM; progress running 1; while true; do sleep 0.02; done");
  StartAgent();
  state_.Want(Run(1));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  {
    absl::MutexLock lock(&state_.mutex);
    state_.desired.clear();
    ++state_.revision;
  }
  ASSERT_TRUE(state_.Wait([&] { return state_.observed.empty(); }));
  EXPECT_FALSE(FileExists(dir_.root()));
}

TEST_F(AgentTest, ADaemonThatLeavesHasLeftOnceTheServerHasAllAndGivesNothing) {
  Trainer("trap 'exit 15' TERM; progress running 1; while true; do sleep 0.02; done");
  StartAgent();
  state_.Want(Run(1));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  EXPECT_TRUE(FileExists(JoinPath(folder_, "heard")));
  agent_->Leave(absl::Seconds(20));
  ASSERT_TRUE(state_.Wait([&] { return state_.leave_within.seconds() == 20; }));
  EXPECT_FALSE(agent_->has_left()) << "the rank runs";
  state_.Want(Order(v1::DesiredAttempt::STOP));
  ASSERT_TRUE(WaitForDrained());
  EXPECT_FALSE(agent_->has_left()) << "the server has not told it to remove what ran";
  {
    absl::MutexLock lock(&state_.mutex);
    state_.desired.clear();
    ++state_.revision;
  }
  EXPECT_TRUE(testing::WaitUntil([&] { return agent_->has_left(); }, absl::Seconds(20)));
  EXPECT_FALSE(FileExists(dir_.root()));
}

TEST_F(AgentTest, ADaemonThatRunsNothingHasNotLeftBeforeTheServerKnowsOfIt) {
  StartAgent();
  ASSERT_TRUE(state_.Wait([&] { return state_.registrations == 1; }));
  EXPECT_FALSE(agent_->has_left());
  server_.reset();
  agent_->Leave(absl::Seconds(20));
  EXPECT_FALSE(testing::WaitUntil([&] { return agent_->has_left(); }, absl::Milliseconds(300)))
      << "the server may have something on its way";
  StartServer();
  EXPECT_TRUE(testing::WaitUntil([&] { return agent_->has_left(); }, absl::Seconds(30)));
}

TEST_F(AgentTest, ADaemonThatRestartsAdoptsWhatRunsAndRunsNothingTwice) {
  Trainer("echo begun; progress running 1; await go; echo ended");
  StartAgent();
  state_.Want(Run(1));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  agent_.reset();
  {
    absl::MutexLock lock(&state_.mutex);
    state_.observed.clear();
  }
  StartAgent();
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  Touch("go");
  ASSERT_TRUE(WaitForDrained());
  EXPECT_EQ(Last().outcome().kind(), v1::AttemptOutcome::SUCCEEDED);
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.logs[{kName, 0}]), "begun\nended\n");
}

TEST_F(AgentTest, AJobThatEndsWhileServerAndDaemonAreAwayIsReportedInFull) {
  Trainer("echo begun; progress running 1; await go; progress finished 10; echo ended");
  StartAgent();
  state_.Want(Run(1));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  server_.reset();
  agent_.reset();
  Touch("go");
  ASSERT_TRUE(testing::WaitUntil([this] { return FileExists(dir_.ExitPath()); }));
  StartAgent();
  StartServer();
  ASSERT_TRUE(WaitForDrained());
  EXPECT_EQ(Last().outcome().kind(), v1::AttemptOutcome::SUCCEEDED);
  EXPECT_EQ(Last().outcome().step(), 10);
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.logs[{kName, 0}]), "begun\nended\n");
  EXPECT_GE(state_.registrations, 2);
}

TEST_F(AgentTest, AServerThatRestartsFindsTheJobRunning) {
  Trainer("echo begun; progress running 1; await go; echo ended");
  StartAgent();
  state_.Want(Run(1));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  server_.reset();
  {
    absl::MutexLock lock(&state_.mutex);
    state_.observed.clear();
    state_.revision = 1;  // counted from the beginning
  }
  StartServer();
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  Touch("go");
  ASSERT_TRUE(WaitForDrained());
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.logs[{kName, 0}]), "begun\nended\n");
}

TEST_F(AgentTest, ADeadSupervisorIsAFailureOnceItsRanksAreGone) {
  Trainer("progress running 1; while true; do sleep 0.02; done");
  StartAgent();
  state_.Want(Run(2));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  const auto record = run_dir::ReadSupervisorRecord(dir_);
  ASSERT_TRUE(record.ok());
  kill(static_cast<pid_t>(record->pid), SIGKILL);
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_EXITED));
  EXPECT_EQ(Last().outcome().kind(), v1::AttemptOutcome::FAILED);
  EXPECT_EQ(Last().outcome().failure().failure_class(), v1::FAILURE_CLASS_TRANSIENT);
  EXPECT_EQ(Last().outcome().failure().reason(), "SUPERVISOR_DIED");
  for (const auto& rank : record->ranks) {
    EXPECT_FALSE(testing::IsProcessAlive(rank.pid, rank.start_ticks));
  }
}

TEST_F(AgentTest, AFailureCarriesItsClassItsReasonAndItsRank) {
  Trainer(R"(if [ $R = 1 ]; then
  echo '{"outcome":"hardware","reason":"DEVICE_LOST","message":"no","step":0,"metrics":{}}' > $D/ranks/1/result.json
  exit 76
fi
trap 'exit 15' TERM; while true; do sleep 0.02; [ -e $D/ranks/1/exit.json ] && exit 15; done)");
  StartAgent();
  state_.Want(Run(2));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_EXITED));
  const v1::AttemptOutcome outcome = Last().outcome();
  EXPECT_EQ(outcome.kind(), v1::AttemptOutcome::FAILED);
  EXPECT_EQ(outcome.failure().failure_class(), v1::FAILURE_CLASS_HARDWARE);
  EXPECT_EQ(outcome.failure().reason(), "DEVICE_LOST");
  EXPECT_EQ(outcome.failed_rank(), 1);
}

TEST_F(AgentTest, AnAttemptOnAGpuThatFailsHasFailedByHardware) {
  const std::string state = JoinPath(folder_, "gpus");
  const std::string gpus =
      "gpu GPU-aa name=NVIDIA_H200 memory=1000 utilization=50 temperature=60\n"
      "gpu GPU-bb name=NVIDIA_H200 memory=1000 utilization=70\n";
  TY_CHECK_OK(WriteFileAtomically(state, gpus));
  setenv("FAKE_NVML_STATE", state.c_str(), 1);
  auto nvml = Nvml::Open(FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  nvml_ = *std::move(nvml);
  // The attempt is not affected by what happens to its device.
  Trainer("trap 'exit 15' TERM; progress running 4; while true; do sleep 0.02; done");
  TY_CHECK_OK(WriteFileAtomically(JoinPath(folder_, "trainer.sh-cuda"),
                                  *ReadFile(JoinPath(folder_, "trainer.sh")), 0755));
  StartAgent(nvml_.get());
  v1::DesiredAttempt desired = Run(2);
  desired.mutable_ranks(0)->set_device("GPU-aa");
  desired.mutable_ranks(1)->set_device("GPU-bb");
  state_.Want(desired);
  const std::pair<std::string, int> second(kName, DeviceStreamOf(1));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[second].size() >= 3; }));
  {
    absl::MutexLock lock(&state_.mutex);
    EXPECT_EQ(state_.points[second][0].name(), "gpu.utilization.rank1");
    EXPECT_EQ(state_.points[second][0].value(), 0.7);
    EXPECT_EQ(state_.points[second][0].step(), 4);
  }
  TY_CHECK_OK(WriteFileAtomically(state, gpus + "xid 1 GPU-bb 94\n"));
  ASSERT_TRUE(WaitForDrained());
  const v1::AttemptOutcome outcome = Last().outcome();
  EXPECT_EQ(outcome.kind(), v1::AttemptOutcome::FAILED);
  EXPECT_EQ(outcome.failure().failure_class(), v1::FAILURE_CLASS_HARDWARE);
  EXPECT_EQ(outcome.failure().reason(), "DEVICE_LOST");
  EXPECT_THAT(outcome.failure().message(), ::testing::HasSubstr("GPU-bb has failed: Xid 94"));
  EXPECT_EQ(outcome.failed_rank(), 1);
  absl::MutexLock lock(&state_.mutex);
  ASSERT_EQ(state_.devices.size(), 2u);
  EXPECT_EQ(state_.devices[0].health(), v1::DEVICE_HEALTH_OK);
  EXPECT_EQ(state_.devices[0].usage().temperature_celsius(), 60);
  EXPECT_EQ(state_.devices[1].health(), v1::DEVICE_HEALTH_QUARANTINED);
  EXPECT_EQ(state_.points[second].back().name(), "gpu.xid.rank1");
}

TEST_F(AgentTest, ADeviceThatIsNotHereIsAFailureOfTheHardware) {
  Trainer("exit 0");
  StartAgent();
  v1::DesiredAttempt desired = Run(2);
  desired.mutable_ranks(1)->set_device("GPU-gone");
  state_.Want(desired);
  ASSERT_TRUE(WaitForDrained());
  EXPECT_EQ(Last().outcome().failure().failure_class(), v1::FAILURE_CLASS_HARDWARE);
  EXPECT_EQ(Last().outcome().failure().reason(), "DEVICE_NOT_FOUND");
  EXPECT_EQ(Last().outcome().failed_rank(), 1);
  state_.Want(Order(v1::DesiredAttempt::REMOVE));
  EXPECT_TRUE(state_.Wait([&] { return state_.observed.empty(); }));
}

TEST_F(AgentTest, AnAddressThatIsNotHereIsAFailureWithAName) {
  Trainer("exit 0");
  address_ = "nosuch0";
  StartAgent();
  v1::DesiredAttempt desired = Run(1);
  desired.set_world_size(2);
  desired.set_spans_workers(true);
  state_.Want(desired);
  ASSERT_TRUE(WaitForDrained());
  EXPECT_EQ(Last().outcome().failure().failure_class(), v1::FAILURE_CLASS_TRANSIENT);
  EXPECT_EQ(Last().outcome().failure().reason(), "INTERFACE_NOT_FOUND");
  EXPECT_THAT(Last().outcome().failure().message(), ::testing::HasSubstr("no interface 'nosuch0'"));
}

TEST_F(AgentTest, ATrainerThatIsNotThereIsAFailureWithAName) {
  StartAgent();
  state_.Want(Run(1));
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_EXITED));
  EXPECT_EQ(Last().outcome().failure().reason(), "TRAINER_NOT_STARTED");
}

TEST_F(AgentTest, FetchesTheCheckpointFromWhichAnAttemptStarts) {
  Trainer(R"(cat $D/resume/step-30/model.safetensors; grep -c resume/step-30 $D/assignment.json)");
  v1::DesiredAttempt desired = Run(1);
  desired.mutable_resume_from()->set_name("jobs/12/checkpoints/30");
  desired.mutable_resume_from()->set_step(30);
  v1::CheckpointFile& file = *desired.mutable_resume_from()->add_files();
  file.set_name("model.safetensors");
  file.set_size(5);
  file.set_hash(ContentHash("bytes"));
  {
    absl::MutexLock lock(&state_.mutex);
    state_.files[{30, "model.safetensors"}] = "bytes";
  }
  StartAgent();
  state_.Want(desired);
  ASSERT_TRUE(WaitForDrained());
  EXPECT_EQ(Last().outcome().kind(), v1::AttemptOutcome::SUCCEEDED);
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.logs[{kName, 0}]), "bytes1\n");
}

TEST_F(AgentTest, FetchesTheWeightsWithWhichAnAttemptBegins) {
  Trainer(R"(cat $D/resume/step-30/model.safetensors
grep -c '"init_from": ".*resume/step-30"' $D/assignment.json
grep -c '"resume_from": ""' $D/assignment.json)");
  v1::DesiredAttempt desired = Run(1);
  desired.mutable_init_from()->set_name("jobs/12/checkpoints/30");
  desired.mutable_init_from()->set_step(30);
  v1::CheckpointFile& file = *desired.mutable_init_from()->add_files();
  file.set_name("model.safetensors");
  file.set_size(5);
  file.set_hash(ContentHash("bytes"));
  {
    absl::MutexLock lock(&state_.mutex);
    state_.files[{30, "model.safetensors"}] = "bytes";
  }
  StartAgent();
  state_.Want(desired);
  ASSERT_TRUE(WaitForDrained());
  EXPECT_EQ(Last().outcome().kind(), v1::AttemptOutcome::SUCCEEDED);
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.logs[{kName, 0}]), "bytes1\n1\n");
}

TEST_F(AgentTest, ACheckpointThatTheServerAsksForIsWrittenAndCommitted) {
  // Answers like a trainer: the folder gets its name when it is complete.
  Trainer(R"(progress running 1; mv $S/made $D/checkpoints/step-30.partial
while [ ! -e $D/control/checkpoint ]; do sleep 0.02; done
cat $D/control/checkpoint; mv $D/checkpoints/step-30.partial $D/checkpoints/step-30
await go)");
  TY_CHECK_OK(checkpoint::WriteCheckpoint(folder_, 30, {{"model.safetensors", "bytes"}}));
  TY_CHECK(rename(checkpoint::CheckpointPath(folder_, 30).c_str(),
                  JoinPath(folder_, "made").c_str()) == 0);
  StartAgent();
  v1::DesiredAttempt desired = Run(1);
  state_.Want(desired);
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  EXPECT_EQ(run_dir::ReadCheckpointRequest(dir_).value(), 0);
  desired.set_checkpoint_request(2);
  state_.Want(desired);
  ASSERT_TRUE(state_.Wait([&] { return state_.commits.contains(30); }));
  ASSERT_TRUE(
      state_.Wait([&] { return Seen() != nullptr && Seen()->progress().checkpoint_step() == 30; }));
  Touch("go");
  ASSERT_TRUE(WaitForDrained());
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.logs[{kName, 0}]), "2\n");
}

TEST_F(AgentTest, RegistersItsLabels) {
  StartAgent();
  ASSERT_TRUE(state_.Wait([&] { return state_.registrations == 1; }));
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ(state_.registered.labels().at("zone"), "a");
}

TEST_F(AgentTest, MirrorsRendezvousKeys) {
  Trainer(R"(printf mine > $D/k; mv $D/k $D/rendezvous/rank0
while [ ! -e $D/rendezvous/rank1 ]; do sleep 0.02; done
cat $D/rendezvous/rank1)");
  v1::DesiredAttempt desired = Run(1);
  desired.set_world_size(2);
  desired.set_spans_workers(true);
  StartAgent();
  state_.Want(desired);
  ASSERT_TRUE(state_.Wait([&] {
    return Seen() != nullptr && Seen()->rendezvous().contains("rank0") &&
           Seen()->rendezvous().at("rank0") == "mine";
  }));
  const auto assignment = run_dir::ReadAssignment(dir_);
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  EXPECT_EQ(assignment->interface, "127.0.0.1");
  EXPECT_EQ(assignment->worker, "w");
  (*desired.mutable_rendezvous())["rank1"] = "theirs\n";
  state_.Want(desired);
  ASSERT_TRUE(WaitForDrained());
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.logs[{kName, 0}]), "theirs\n");
}

// A rank that has found its peers may run before the server has heard of its last key.
TEST_F(AgentTest, TellsRendezvousKeysOfARankThatRunsUntilTheyComeBack) {
  Trainer(R"(progress running 1
await found
printf mine > $D/k; mv $D/k $D/rendezvous/rank0
while [ ! -e $D/control/stop ]; do sleep 0.02; done)");
  v1::DesiredAttempt desired = Run(1);
  desired.set_world_size(2);
  desired.set_spans_workers(true);
  StartAgent();
  state_.Want(desired);
  ASSERT_TRUE(WaitForState(v1::OBSERVED_STATE_RUNNING));
  Touch("found");
  ASSERT_TRUE(
      state_.Wait([&] { return Seen() != nullptr && Seen()->rendezvous().contains("rank0"); }));
  (*desired.mutable_rendezvous())["rank0"] = "mine";
  state_.Want(desired);
  EXPECT_TRUE(state_.Wait([&] { return Seen() != nullptr && Seen()->rendezvous().empty(); }));
}

}  // namespace
}  // namespace trainyard::agent
