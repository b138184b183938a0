// Tests which ranks of a gang of GPUs measure kernels, and what the others do meanwhile, in whole
// trainings on emulated devices.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "tests/unit/worker/data/token_files.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/shared_backend.h"
#include "worker/trainer/cuda/cuda_support.h"
#include "worker/trainer/pipeline/pipeline_executable.h"

namespace trainyard::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The emulation has a device for each rank of the largest gang. It reads this variable when it is
// first used.
const int kFourDevices = setenv("TRAINYARD_CUDA_DEVICES", "4", /*overwrite=*/1);

// The rank that is this thread.
thread_local run_dir::RankAssignment this_rank;

// One compilation of a rank.
struct Compilation {
  absl::Duration begin;
  absl::Duration end;
  std::string given;     // CompileOptions::choices
  std::string measured;  // Executable::MeasuredChoices
};

// The compilations of all ranks, and what a test does while one lasts.
class Watch {
 public:
  static Watch& Get() {
    static auto& watch = *new Watch();
    return watch;
  }
  void Start(std::function<void()> during) {
    during_ = std::move(during);
    compilations_.clear();
  }
  void During() { during_(); }
  void Add(int rank, Compilation compilation) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(compilations_.emplace(rank, std::move(compilation)).second)
        << "rank " << rank << " compiles again";
  }
  const Compilation& Of(int rank) const { return compilations_.at(rank); }

 private:
  std::function<void()> during_;
  std::mutex mutex_;
  std::map<int, Compilation> compilations_;
};

// Tells the watch what the backend compiles.
class WatchedBackend final : public engine::Backend {
 public:
  explicit WatchedBackend(std::unique_ptr<engine::Backend> backend)
      : backend_(std::move(backend)) {}

  absl::string_view name() const override { return backend_->name(); }
  engine::Precision auto_precision() const override { return backend_->auto_precision(); }
  absl::StatusOr<engine::CompilePlan> Plan(const engine::Graph& model,
                                           const engine::OptimizerSpec& optimizer,
                                           const engine::CompileOptions& options) override {
    return backend_->Plan(model, optimizer, options);
  }
  absl::StatusOr<std::unique_ptr<engine::Executable>> Compile(
      const engine::Graph& model, const engine::OptimizerSpec& optimizer,
      const engine::CompileOptions& options) override {
    Compilation made;
    made.given = options.choices;
    made.begin = Clock::Real()->Uptime();
    auto executable = backend_->Compile(model, optimizer, options);
    Watch::Get().During();
    made.end = Clock::Real()->Uptime();
    if (executable.ok()) made.measured = (*executable)->MeasuredChoices();
    Watch::Get().Add(this_rank.rank, std::move(made));
    return executable;
  }

 private:
  const std::unique_ptr<engine::Backend> backend_;
};

class MeasuringGang : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Each rank is a thread with plans of its own, which no cache keeps.
    engine::RegisterBackend("cuda", [] {
      thread_local const engine::BackendFactory shared =
          engine::ShareBackend([]() -> absl::StatusOr<std::unique_ptr<engine::Backend>> {
            auto made = engine::MakeCudaBackend({.autotunes = true});
            if (!made.ok()) return made.status();
            return std::make_unique<WatchedBackend>(*std::move(made));
          });
      return shared();
    });
  }
  void TearDown() override { cuda_on_cpu::FailRuns({}); }

  // Rank r computes on device devices[r]. Values go by way of the host, so that ranks may share
  // one.
  static void Place(GangTrainer& gang, const std::vector<int>& devices) {
    for (run_dir::RankAssignment& rank : gang.assignment().ranks) {
      rank.device = absl::StrCat("GPU-", devices[static_cast<size_t>(rank.rank)]);
    }
    gang.set_choose_device([devices](const run_dir::Assignment&, run_dir::RankAssignment& rank) {
      this_rank = rank;
      return engine::cuda::CudaStatus(cudaSetDevice(devices[static_cast<size_t>(rank.rank)]),
                                      "choosing a device");
    });
    const auto gang_of = [&gang](int rank) {
      return DeviceGang{.run_dir = gang.dir(),
                        .assignment = gang.assignment(),
                        .rank = rank,
                        .transport = "staged"};
    };
    gang.set_make_exchange([gang_of](int rank, DeviceExchangeRequest request) {
      return CudaSupport().MakeExchange(gang_of(rank), std::move(request));
    });
    gang.set_make_link([gang_of](int rank, DeviceLinkRequest request) {
      return CudaSupport().MakeLink(gang_of(rank), std::move(request));
    });
  }

  // Runs the gang. `during` is called on the thread of each rank while it compiles.
  static void Train(GangTrainer& gang, int64_t steps, std::function<void()> during) {
    Watch::Get().Start(std::move(during));
    ExpectSuccess(gang.Run(), steps);
  }
};

JobText FourRanks() {
  JobText job;
  job.train = R"({"steps": 2, "global_batch": 16, "replicas": 4, "precision": "PRECISION_BF16"})";
  return job;
}

TEST_F(MeasuringGang, EachTypeOfGpuTakesOverWhatOneOfItsTypeChose) {
  GangTrainer gang(FourRanks(), 4, "cuda");
  Place(gang, {0, 1, 2, 3});
  const std::vector<std::string> types = {"h200", "a100", "a100", "h200"};
  for (run_dir::RankAssignment& rank : gang.assignment().ranks) {
    rank.device_type = types[static_cast<size_t>(rank.rank)];
  }
  // Each type can run only one engine.
  cuda_on_cpu::FailRuns(
      [](int64_t engine) { return engine != (this_rank.device_type == "a100" ? 1 : 0); });
  Train(gang, 2, [] {});
  const Watch& watch = Watch::Get();
  EXPECT_THAT(watch.Of(0).measured, HasSubstr("engine 0 "));
  EXPECT_THAT(watch.Of(1).measured, HasSubstr("engine 1 "));
  for (const int leader : {0, 1}) {
    const int follower = 3 - leader;
    EXPECT_THAT(watch.Of(leader).given, IsEmpty());
    EXPECT_EQ(watch.Of(follower).given, watch.Of(leader).measured);
    EXPECT_EQ(watch.Of(follower).measured, watch.Of(leader).measured);
  }
}

TEST_F(MeasuringGang, StagesOnOneGpuMeasureOneAfterTheOther) {
  JobText job = FourRanks();
  job.more = R"(, "devices": {"count": 4}, "stages": {"cuts": ["conv2"]})";
  GangTrainer gang(job, 4, "cuda");
  Place(gang, {0, 0, 0, 0});
  // Each compilation lasts long enough for another to get in its way.
  std::atomic<int> compiling = 0;
  Train(gang, 2, [&] {
    ++compiling;
    if (this_rank.rank < 2) {
      EXPECT_FALSE(testing::WaitUntil([&] { return compiling > 1; }, absl::Milliseconds(200)))
          << "rank " << this_rank.rank << " is disturbed";
    }
    --compiling;
  });
  const Watch& watch = Watch::Get();
  EXPECT_GT(watch.Of(1).begin, watch.Of(0).end);
  for (const int rank : {2, 3}) {
    EXPECT_GT(watch.Of(rank).begin, watch.Of(1).end);
    EXPECT_EQ(watch.Of(rank).given, watch.Of(rank - 2).measured);
  }
  EXPECT_NE(watch.Of(0).measured, watch.Of(1).measured);
}

TEST_F(MeasuringGang, StagesOnDifferentGpusMeasureAtTheSameTime) {
  JobText job = FourRanks();
  job.more = R"(, "devices": {"count": 4}, "stages": {"cuts": ["conv2"]})";
  GangTrainer gang(job, 4, "cuda");
  Place(gang, {0, 1, 2, 3});
  std::atomic<int> measuring = 0;
  Train(gang, 2, [&] {
    ++measuring;
    if (this_rank.rank > 1) return;
    EXPECT_TRUE(testing::WaitUntil([&] { return measuring >= 2; })) << "the other stage waits";
  });
}

// The file is mapped by every rank that has loaded its data.
TEST_F(MeasuringGang, TheOthersLoadTheirDataWhileOneMeasures) {
  const testing::TempDir folder;
  TY_CHECK_OK(MakeDirectories(folder.File("made")));
  folder.Write("made/train.bin", data::RawTokens(data::LearnableTokens(100, 11)));
  folder.Write("made/val.bin", data::HeadedTokens(data::LearnableTokens(50, 11)));
  JobText job;
  job.model = R"({"gpt2": {"layers": 1, "heads": 2, "width": 16, "context": 6, "vocabulary": 11}})";
  job.data = R"({"dataset": "tokens", "path": "made"})";
  job.train = R"({"steps": 1, "global_batch": 4, "replicas": 2, "precision": "PRECISION_BF16"})";
  job.optimizer = R"({"adamw": {"lr": 0.01}})";
  GangTrainer gang(job, 2, "cuda");
  Place(gang, {0, 1});
  gang.assignment().dataset_dir = folder.path();
  const auto have_loaded = [path = folder.File("made/train.bin")] {
    int mappings = 0;
    for (const absl::string_view line :
         absl::StrSplit(ReadFile("/proc/self/maps").value_or(""), '\n')) {
      if (absl::EndsWith(line, path)) ++mappings;
    }
    return mappings == 2;
  };
  Train(gang, 1, [&] {
    if (this_rank.rank > 0) return;
    EXPECT_TRUE(testing::WaitUntil(have_loaded)) << "rank 1 only waits";
  });
}

}  // namespace
}  // namespace trainyard::trainer
