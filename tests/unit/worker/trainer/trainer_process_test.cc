// Tests the real program: several processes over each transport, signals, and the state that
// remains when one of them is killed.
#include <csignal>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/wait.h"
#include "tests/unit/worker/trainer/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/records.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::HasSubstr;
using testing::Process;

// This is longer than anything takes on a busy machine.
constexpr absl::Duration kPatience = absl::Seconds(40);
// Within this time a rank must notice that its peer was killed.
constexpr absl::Duration kNotice = absl::Seconds(5);

const std::string kBinary = testing::BinaryPath("trainyard-trainer");

// By transport.
class TrainerProcessTest : public ::testing::TestWithParam<const char*>, protected RankProcesses {
 protected:
  TrainerProcessTest() : RankProcesses(kBinary) {}

  // `more` contains further members of the spec, each of which begins with a comma.
  void Prepare(int world_size, const std::string& train, const std::string& more = "") {
    run_dir::Assignment assignment;
    assignment.spec_json = absl::StrCat(
        R"({"name": "processes", "model": {"mlp": {"hidden": [16]}},
            "data": {"dataset": "glyphs", "train_size": 200, "test_size": 20},
            "train": )",
        train, R"(, "optimizer": {"sgd": {"lr": 0.01}})", more, "}");
    Assign(world_size, std::move(assignment));
  }

  std::unique_ptr<Process> Start(int rank) { return StartRank(rank, {"--transport", GetParam()}); }
};

TEST_P(TrainerProcessTest, TwoRanksTrainToTheEnd) {
  Prepare(2, R"({"epochs": 2, "global_batch": 30})");
  const auto first = Start(0), second = Start(1);
  for (Process* process : {first.get(), second.get()}) {
    const auto result = process->Wait(kPatience);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, 0) << result->err;
  }
  EXPECT_EQ(run_dir::ReadRankResult(dir_, 1)->step, 14);
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(dir_.Resolve("checkpoints/step-14")).ok());
}

constexpr char kGrid[] = R"(, "devices": {"count": 4}, "stages": {"count": 2})";

TEST_P(TrainerProcessTest, AGridOfPipelinesEndsWithTheBytesOfOneRank) {
  constexpr char kBitwise[] =
      R"({"epochs": 2, "global_batch": 30, "replicas": 3,
          "reproducibility": "REPRODUCIBILITY_BITWISE"})";
  const std::string path = "checkpoints/step-14";
  std::string bytes[2];
  for (const int world_size : {1, 4}) {
    Prepare(world_size, kBitwise, world_size == 4 ? kGrid : "");
    std::vector<std::unique_ptr<Process>> ranks;
    ranks.reserve(static_cast<size_t>(world_size));
    for (int rank = 0; rank < world_size; ++rank) ranks.push_back(Start(rank));
    for (int rank = 0; rank < world_size; ++rank) {
      const auto result = ranks[static_cast<size_t>(rank)]->Wait(kPatience);
      ASSERT_TRUE(result.ok()) << result.status();
      const std::string log = ReadFile(folder_.File(absl::StrCat("err-", rank))).value_or("");
      ASSERT_EQ(result->exit_code, 0) << log;
      const bool takes_wire = absl::StrContains(log, "gradients take the wire");
      EXPECT_EQ(takes_wire, world_size == 4 && absl::string_view(GetParam()) == "gloo") << log;
    }
    ASSERT_TRUE(checkpoint::VerifyCheckpoint(dir_.Resolve(path)).ok());
    bytes[world_size == 4] = ReadFile(dir_.Resolve(path + "/model.safetensors")).value_or("");
    TY_CHECK_OK(RemoveTree(dir_.CheckpointsDir()));
  }
  EXPECT_FALSE(bytes[0].empty());
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_P(TrainerProcessTest, AKilledStageEndsTheGridWithinSeconds) {
  Prepare(4, R"({"steps": 100000000, "global_batch": 30})", kGrid);
  std::vector<std::unique_ptr<Process>> ranks;
  ranks.reserve(4);
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(Start(rank));
  ASSERT_TRUE(WaitUntilRunning(0));
  ranks[3]->Signal(SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    const auto result = ranks[static_cast<size_t>(rank)]->Wait(kNotice);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, 75) << result->err;
    const auto record = run_dir::ReadRankResult(dir_, rank);
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->reason, "PEER_LOST") << record->message;
  }
}

TEST_P(TrainerProcessTest, AKilledRankIsNamedByTheOtherWithinSeconds) {
  Prepare(2, R"({"steps": 100000000, "global_batch": 30})");
  const auto first = Start(0), second = Start(1);
  ASSERT_TRUE(WaitUntilRunning(0));
  second->Signal(SIGKILL);
  const auto result = first->Wait(kNotice);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 75) << result->err;
  const auto record = run_dir::ReadRankResult(dir_, 0);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->outcome, Outcome::kTransient);
  EXPECT_EQ(record->reason, "PEER_LOST");
  // Returns "step 5, bucket 0: rank 0: all_to_all 27: rank 1 was lost: ...", or "rank 0: reduce of
  // bucket 0 in step 5: rank 1 was lost: its process has ended".
  EXPECT_THAT(record->message, ::testing::ContainsRegex("step [0-9]+"));
  EXPECT_THAT(record->message, ::testing::ContainsRegex("rank 0: [a-z_]+ .*rank 1 was lost"));
}

TEST_P(TrainerProcessTest, TerminatedRanksStopAtTheSameStepWithACheckpoint) {
  Prepare(2, R"({"steps": 100000000, "global_batch": 30})");
  const auto first = Start(0), second = Start(1);
  ASSERT_TRUE(WaitUntilRunning(0));
  ASSERT_TRUE(WaitUntilRunning(1));
  second->Signal(SIGTERM);
  for (Process* process : {first.get(), second.get()}) {
    const auto result = process->Wait(kPatience);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, 15) << result->err;
  }
  const auto record = run_dir::ReadRankResult(dir_, 0);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->outcome, Outcome::kStopped);
  EXPECT_EQ(record->step, run_dir::ReadRankResult(dir_, 1)->step);
  EXPECT_TRUE(
      checkpoint::VerifyCheckpoint(checkpoint::CheckpointPath(dir_.CheckpointsDir(), record->step))
          .ok());
}

TEST_P(TrainerProcessTest, SigUsr1WritesACheckpointAndTrainingGoesOn) {
  Prepare(1, R"({"steps": 100000000, "global_batch": 30})");
  const auto process = Start(0);
  ASSERT_TRUE(WaitUntilRunning(0));
  process->Signal(SIGUSR1);
  EXPECT_TRUE(testing::WaitUntil([this] {
    return !checkpoint::ListCheckpoints(dir_.CheckpointsDir()).empty();
  })) << ReadFile(folder_.File("err-0")).value_or("");
  EXPECT_TRUE(process->running()) << ReadFile(folder_.File("err-0")).value_or("");
}

// A signal frame on the stack of a computing thread once destroyed the heap (see main.cc).
TEST_P(TrainerProcessTest, AStormOfSignalsLeavesTheComputationWhole) {
  Prepare(1, R"({"steps": 100000000, "global_batch": 30})");
  const auto process = Start(0);
  ASSERT_TRUE(WaitUntilRunning(0));
  constexpr int kCheckpoints = 40;
  for (int i = 1; i <= kCheckpoints; ++i) {
    process->Signal(SIGUSR1);
    const auto written = [this] {
      return static_cast<int>(checkpoint::ListCheckpoints(dir_.CheckpointsDir()).size());
    };
    ASSERT_TRUE(testing::WaitUntil([&] { return written() >= i; }))
        << ReadFile(folder_.File("err-0")).value_or("");
  }
  process->Signal(SIGTERM);
  const auto result = process->Wait(kPatience);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 15) << result->err;
}

TEST_P(TrainerProcessTest, ARankThatWaitsForItsPeersCanBeStopped) {
  Prepare(2, R"({"epochs": 1})");
  const auto process = Start(0);
  ASSERT_TRUE(testing::WaitUntil(
      [this] { return FileExists(absl::StrCat(dir_.RendezvousDir(), "/", GetParam(), ".0")); }));
  process->Signal(SIGTERM);
  const auto result = process->Wait(kPatience);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 15) << result->err;
}

INSTANTIATE_TEST_SUITE_P(Transports, TrainerProcessTest, ::testing::Values("gloo", "shm"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(TrainerProgram, AMissingRunDirectoryIsAUserErrorWithItsPath) {
  const testing::TempDir folder;
  Process::Options options;
  options.args = {kBinary, "--run_dir", folder.File("nothing")};
  const auto result = testing::RunProcess(std::move(options), folder.path(), kPatience);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 2);
  EXPECT_THAT(result->err, HasSubstr(folder.File("nothing/assignment.json")));
}

TEST(TrainerProgram, VersionHelpAndPlanNeedNoRunDirectory) {
  const testing::TempDir folder;
  const std::string spec = folder.Write(
      "spec.json", R"({"model": {"mlp": {}}, "data": {"dataset": "glyphs"}, "train": {"epochs": 1},
                       "optimizer": {"sgd": {"lr": 0.1}}})");
  for (const auto& [flag, expected] : std::vector<std::pair<std::string, std::string>>{
           {"--version", "trainyard-trainer 0."},
           {"--help", "--run_dir"},
           {absl::StrCat("--plan=", spec), "203,530 parameters"}}) {
    Process::Options options;
    options.args = {kBinary, flag};
    const auto result = testing::RunProcess(std::move(options), folder.path(), kPatience);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, 0) << result->err;
    EXPECT_THAT(result->out, HasSubstr(expected));
  }
  Process::Options options;
  options.args = {kBinary, "--plan", "-", "--format", "json"};
  options.stdin_path = spec;
  const auto result = testing::RunProcess(std::move(options), folder.path(), kPatience);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->out, HasSubstr("\"parameters\":203530"));
}

}  // namespace
}  // namespace trainyard::trainer
