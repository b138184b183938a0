// Tests stages on a GPU as processes of the trainer's program, on the emulation of one that they
// share: a grid of pipelines, and what is left of it when one process is killed.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/unit/worker/trainer/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/records.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using testing::Process;

// This is longer than anything takes on a busy machine.
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr char kGrid[] = R"(, "devices": {"count": 4}, "stages": {"cuts": ["conv2"]})";

class PipelineProcesses : public ::testing::Test, protected RankProcesses {
 protected:
  PipelineProcesses() : RankProcesses(testing::BinaryPath("trainyard-emulated-trainer-cuda")) {}

  void Prepare(int world_size, const std::string& train, const std::string& more) {
    run_dir::Assignment assignment;
    assignment.backend = "cuda";
    assignment.spec_json = absl::StrCat(
        R"({"name": "processes", "model": {"convnet": {"channels": [4, 6], "batch_norm": true}},
            "data": {"dataset": "glyphs", "train_size": 50, "test_size": 20},
            "train": )",
        train, R"(, "optimizer": {"sgd": {"lr": 0.01}})", more, "}");
    Assign(world_size, std::move(assignment));
  }

  std::vector<std::unique_ptr<Process>> Start(int world_size) {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.push_back(
          StartRank(rank, {"--transport", "staged", "--plan_cache", folder_.File("plans")}));
    }
    return ranks;
  }
};

TEST_F(PipelineProcesses, AGridEndsWithTheBytesOfOneProcess) {
  constexpr char kBitwise[] =
      R"({"epochs": 2, "global_batch": 16, "replicas": 3, "precision": "PRECISION_F32",
          "reproducibility": "REPRODUCIBILITY_BITWISE"})";
  std::vector<std::string> bytes;
  for (const int world_size : {1, 4}) {
    Prepare(world_size, kBitwise, world_size == 4 ? kGrid : "");
    const auto ranks = Start(world_size);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto result = ranks[rank]->Wait(kPatience);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->exit_code, 0)
          << ReadFile(folder_.File(absl::StrCat("err-", rank))).value_or("");
    }
    const std::string path = "checkpoints/step-8";
    ASSERT_TRUE(checkpoint::VerifyCheckpoint(dir_.Resolve(path)).ok());
    bytes.push_back(ReadFile(dir_.Resolve(path + "/model.safetensors")).value_or(""));
    TY_CHECK_OK(RemoveTree(dir_.CheckpointsDir()));
  }
  EXPECT_FALSE(bytes[0].empty());
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_F(PipelineProcesses, AKilledStageEndsTheGrid) {
  Prepare(4, R"({"steps": 100000000, "global_batch": 16, "replicas": 2})", kGrid);
  const auto ranks = Start(4);
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(WaitUntilRunning(rank)) << rank;
  ranks[1]->Signal(SIGKILL);
  for (const size_t rank : {0u, 2u, 3u}) {
    const auto result = ranks[rank]->Wait(kPatience);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, run_dir::kExitTransient);
    const auto record = run_dir::ReadRankResult(dir_, static_cast<int>(rank));
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->outcome, Outcome::kTransient);
    EXPECT_EQ(record->reason, "PEER_LOST") << record->message;
  }
}

}  // namespace
}  // namespace trainyard::trainer
