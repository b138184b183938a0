// Tests jobs with stages on GPUs, or on the emulation of some: a pipeline trains what one GPU and
// what the CPU train, over NCCL and by way of the host.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"
#include "worker/trainer/cuda/cuda_support.h"
#include "worker/trainer/pipeline/pipeline_executable.h"
#include "worker/trainer/pipeline/pipeline_setup.h"
#include "worker/trainer/plan/planned_pipeline.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::trainer {
namespace {

using ::testing::HasSubstr;

// The emulation has a device for each rank of the largest gang. It reads this variable when it is
// first used.
const int kFourDevices = setenv("TRAINYARD_CUDA_DEVICES", "4", /*overwrite=*/1);

constexpr char kTwoStages[] = R"(, "devices": {"count": 2}, "stages": {"cuts": ["conv2"]})";
constexpr char kSharded[] = R"(, "memory": {"shard_optimizer": true})";
constexpr char kGrid[] = R"(, "devices": {"count": 4}, "stages": {"cuts": ["conv2"]})";

// 50 samples in batches of 16, so that each epoch ends with a batch of 2 rows.
JobText Job(bool batch_norm, const std::string& train = "") {
  JobText job;
  job.model = batch_norm ? R"({"convnet": {"channels": [4, 6], "batch_norm": true}})"
                         : R"({"convnet": {"channels": [4, 6]}})";
  job.train = absl::StrCat(R"({"epochs": 2, "global_batch": 16, "replicas": 2, "seed": 5,
                               "precision": "PRECISION_F32")",
                           train, "}");
  return job;
}

JobText Bitwise(bool batch_norm) {
  return Job(batch_norm, R"(, "reproducibility": "REPRODUCIBILITY_BITWISE")");
}

// Connects the gang as the program does. Rank r computes on GPU devices[r]. Returns false if there
// are too few.
bool Place(GangTrainer& gang, const std::vector<int>& devices, const std::string& transport) {
  int count = 0;
  const int wanted = static_cast<int>(std::set<int>(devices.begin(), devices.end()).size());
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < wanted) return false;
  for (run_dir::RankAssignment& rank : gang.assignment().ranks) {
    rank.device = absl::StrCat("GPU-", devices[static_cast<size_t>(rank.rank)]);
  }
  gang.set_choose_device([devices](const run_dir::Assignment&, run_dir::RankAssignment& rank) {
    return engine::cuda::CudaStatus(cudaSetDevice(devices[static_cast<size_t>(rank.rank)]),
                                    "choosing a device");
  });
  const auto gang_of = [&gang, transport](int rank) {
    return DeviceGang{.run_dir = gang.dir(),
                      .assignment = gang.assignment(),
                      .rank = rank,
                      .transport = transport};
  };
  gang.set_make_exchange([gang_of](int rank, DeviceExchangeRequest request) {
    return CudaSupport().MakeExchange(gang_of(rank), std::move(request));
  });
  gang.set_make_link([gang_of](int rank, DeviceLinkRequest request) {
    return CudaSupport().MakeLink(gang_of(rank), std::move(request));
  });
  return true;
}

void ExpectSameFiles(const GangTrainer& got, const GangTrainer& expected) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_FALSE(got.CheckpointBytes(kSteps, file).empty()) << file;
    EXPECT_EQ(got.CheckpointBytes(kSteps, file), expected.CheckpointBytes(kSteps, file)) << file;
  }
}

// Ranks of a pair have a GPU each, or share one.
struct Layout {
  const char* name;
  std::vector<int> devices;
  const char* transport;
};
class PipelinesOnCuda : public ::testing::TestWithParam<Layout> {
 protected:
  bool PlaceTwo(GangTrainer& gang) { return Place(gang, GetParam().devices, GetParam().transport); }
  // Runs the job in two stages. Returns null if there are too few GPUs.
  std::unique_ptr<GangTrainer> RunTwo(const JobText& job) {
    auto pipeline = std::make_unique<GangTrainer>(job, 2, "cuda");
    if (!PlaceTwo(*pipeline)) return nullptr;
    ExpectSuccess(pipeline->Run());
    return pipeline;
  }
};

TEST_P(PipelinesOnCuda, LearnWhatTheCpuLearnsInEverySchedule) {
  GangTrainer cpu(Job(false), 1, "cpu");
  ExpectSuccess(cpu.Run());
  for (const char* schedule : {R"("schedule": "PIPELINE_SCHEDULE_1F1B", "microbatches": 5)",
                               R"("schedule": "PIPELINE_SCHEDULE_GPIPE", "microbatches": 3)",
                               R"("schedule": "PIPELINE_SCHEDULE_SEQUENTIAL")"}) {
    SCOPED_TRACE(schedule);
    JobText job = Job(false);
    job.more =
        absl::StrCat(R"(, "devices": {"count": 2}, "stages": {"cuts": ["conv2"], )", schedule, "}");
    GangTrainer pipeline(job, 2, "cuda");
    if (!PlaceTwo(pipeline)) GTEST_SKIP() << "this machine has no two GPUs";
    const auto results = pipeline.Run();
    ExpectSuccess(results);
    for (const char* metric : {"train.loss", "train.accuracy", "test.loss"}) {
      ExpectNear(pipeline.Metric(metric), cpu.Metric(metric), 2e-3);
    }
    for (const run_dir::RankResult& result : results) {
      EXPECT_GT(result.metrics.at("pipeline.step_seconds"), 0);
      EXPECT_GE(result.metrics.at("pipeline.waited"), 0);
      EXPECT_LT(result.metrics.at("pipeline.waited"), 1);
    }
  }
}

// In a bitwise run each replica is a microbatch, on one GPU as in the pipeline. The cut separates
// no layers that a GPU computes as one.
TEST_P(PipelinesOnCuda, EndWithTheBytesOfOneGpu) {
  for (const bool batch_norm : {false, true}) {
    JobText job = Bitwise(batch_norm);
    GangTrainer alone(job, 1, "cuda");
    ExpectSuccess(alone.Run());
    job.more = kTwoStages;
    const auto pipeline = RunTwo(job);
    if (pipeline == nullptr) GTEST_SKIP() << "this machine has no two GPUs";
    ExpectSameFiles(*pipeline, alone);
    EXPECT_EQ(pipeline->Metric("train.loss"), alone.Metric("train.loss"));
    EXPECT_EQ(pipeline->Metric("test.loss"), alone.Metric("test.loss"));
  }
}

// Dropout is drawn by the row and the step, and once more where a norm is computed again. The cuts
// lie on both sides of it.
TEST_P(PipelinesOnCuda, DropWhatOneGpuDrops) {
  JobText job = Bitwise(false);
  job.model = R"({"layers": {"stack": [{"conv2d": {"channels": 4}}, {"relu": {}},
      {"dropout": {"rate": 0.3}}, {"max_pool": {"size": 2}}, {"flatten": {}},
      {"linear": {"features": 12}}, {"tanh": {}}, {"dropout": {"rate": 0.2}},
      {"linear": {"features": 10}}]}})";
  GangTrainer alone(job, 1, "cuda");
  ExpectSuccess(alone.Run());
  for (const char* cut : {"dropout1", "max_pool1", "tanh1", "linear2"}) {
    SCOPED_TRACE(cut);
    JobText cut_job = job;
    cut_job.more =
        absl::StrCat(R"(, "devices": {"count": 2}, "stages": {"cuts": [")", cut, R"("]})");
    const auto pipeline = RunTwo(cut_job);
    if (pipeline == nullptr) GTEST_SKIP() << "this machine has no two GPUs";
    ExpectNear(pipeline->Metric("train.loss"), alone.Metric("train.loss"), 1e-5);
    ExpectNear(pipeline->Metric("test.loss"), alone.Metric("test.loss"), 1e-5);
  }
}

// Values cross in 16 bits, where no number of channels is a whole vector.
TEST_P(PipelinesOnCuda, LearnInSixteenBits) {
  JobText job = Job(true);
  job.train.replace(job.train.find("F32"), 3, "BF16");
  // The kernels that are measured to be fastest differ from run to run, and so do the roundings.
  // They grow where the loss jumps, as with a high rate, and where statistics are over few values,
  // as in a last batch of two rows.
  job.optimizer = R"({"sgd": {"lr": 0.005, "momentum": 0.9}})";
  job.data = R"({"dataset": "glyphs", "train_size": 64, "test_size": 17})";
  GangTrainer alone(job, 1, "cuda");
  ExpectSuccess(alone.Run());
  job.more = kTwoStages;
  const auto pipeline = RunTwo(job);
  if (pipeline == nullptr) GTEST_SKIP() << "this machine has no two GPUs";
  ExpectNear(pipeline->Metric("train.loss"), alone.Metric("train.loss"), 1e-2);
}

// Passes everything on, until it has received so many values. Then the rank gives up, as if its
// process had ended.
class FailingLink final : public parallel::StageLink {
 public:
  FailingLink(std::unique_ptr<parallel::StageLink> link, int left)
      : link_(std::move(link)), left_(left) {}

  absl::Status Send(int slot, absl::Span<const float> values) override {
    return link_->Send(slot, values);
  }
  absl::Status AwaitSent(int slot) override { return link_->AwaitSent(slot); }
  absl::Status Receive(int slot, absl::Span<float> values) override {
    if (left_-- > 0) return link_->Receive(slot, values);
    return absl::InternalError("this rank gives up");
  }
  absl::Status Release(int slot) override { return link_->Release(slot); }
  absl::Status SendNumbers(absl::Span<const float> numbers) override {
    return link_->SendNumbers(numbers);
  }
  absl::Status ReceiveNumbers(absl::Span<float> numbers) override {
    return link_->ReceiveNumbers(numbers);
  }
  void set_timeout(absl::Duration timeout) override { link_->set_timeout(timeout); }

 private:
  const std::unique_ptr<parallel::StageLink> link_;
  int left_;
};

// Passes everything on, and writes down what a step exchanges: 's' for each Send, and 'n' for the
// metrics that come back.
class ListeningLink final : public parallel::StageLink {
 public:
  ListeningLink(std::unique_ptr<parallel::StageLink> link, std::string& heard)
      : link_(std::move(link)), heard_(heard) {}

  absl::Status Send(int slot, absl::Span<const float> values) override {
    heard_ += 's';
    return link_->Send(slot, values);
  }
  absl::Status AwaitSent(int slot) override { return link_->AwaitSent(slot); }
  absl::Status Receive(int slot, absl::Span<float> values) override {
    return link_->Receive(slot, values);
  }
  absl::Status Release(int slot) override { return link_->Release(slot); }
  absl::Status SendNumbers(absl::Span<const float> numbers) override {
    return link_->SendNumbers(numbers);
  }
  absl::Status ReceiveNumbers(absl::Span<float> numbers) override {
    heard_ += 'n';
    return link_->ReceiveNumbers(numbers);
  }
  void set_timeout(absl::Duration timeout) override { link_->set_timeout(timeout); }

 private:
  const std::unique_ptr<parallel::StageLink> link_;
  std::string& heard_;
};

// The metrics of a step are exchanged when the next one is enqueued, and all of them before the
// evaluation at the end of the epoch. Each of its four steps has two microbatches.
TEST_P(PipelinesOnCuda, BeginAStepBeforeTheOneBeforeIsFinished) {
  JobText job = Job(false);
  job.more = R"(, "devices": {"count": 2}, "stages": {"cuts": ["conv2"], "microbatches": 2})";
  GangTrainer pipeline(job, 2, "cuda");
  if (!PlaceTwo(pipeline)) GTEST_SKIP() << "this machine has no two GPUs";
  std::string heard;
  const DeviceGang gang = {.run_dir = pipeline.dir(),
                           .assignment = pipeline.assignment(),
                           .transport = GetParam().transport};
  pipeline.set_make_link([gang, &heard](int rank, DeviceLinkRequest request)
                             -> absl::StatusOr<std::unique_ptr<parallel::StageLink>> {
    DeviceGang of_rank = gang;
    of_rank.rank = rank;
    auto link = CudaSupport().MakeLink(of_rank, std::move(request));
    if (!link.ok() || rank != 0) return link;
    return std::make_unique<ListeningLink>(*std::move(link), heard);
  });
  ExpectSuccess(pipeline.Run());
  EXPECT_THAT(heard, ::testing::StartsWith("ssssnssnssnns"));
}

// The step is named in which it happened, although the next one was under way.
TEST_P(PipelinesOnCuda, NameTheStepInWhichTheyDiverged) {
  JobText job = Bitwise(false);
  job.model = R"({"mlp": {"hidden": [8]}})";
  job.optimizer = R"({"sgd": {"lr": 1000, "momentum": 0.9}})";
  job.train.replace(job.train.find("\"epochs\": 2"), 11, "\"steps\": 40");
  GangTrainer alone(job, 1, "cuda");
  const run_dir::RankResult expected = alone.Run()[0];
  EXPECT_EQ(expected.reason, "LOSS_NOT_FINITE");
  job.more = R"(, "devices": {"count": 2}, "stages": {"count": 2})";
  GangTrainer pipeline(job, 2, "cuda");
  if (!PlaceTwo(pipeline)) GTEST_SKIP() << "this machine has no two GPUs";
  for (const run_dir::RankResult& result : pipeline.Run()) {
    EXPECT_EQ(result.reason, "LOSS_NOT_FINITE");
    EXPECT_EQ(result.message, expected.message);
  }
}

// The one in the middle is lost in the second step. Its neighbours wait for it on both sides.
TEST_P(PipelinesOnCuda, ALostStageEndsTheOthers) {
  JobText job = Job(false);
  job.more = R"(, "devices": {"count": 3}, "stages": {"cuts": ["conv2", "fc"]})";
  GangTrainer pipeline(job, 3, "cuda");
  std::vector<int> devices = GetParam().devices;
  devices.push_back(devices.back() * 2);
  if (!Place(pipeline, devices, GetParam().transport)) GTEST_SKIP() << "there are too few GPUs";
  const DeviceGang gang = {.run_dir = pipeline.dir(),
                           .assignment = pipeline.assignment(),
                           .transport = GetParam().transport};
  pipeline.set_make_link(
      [gang](int rank,
             DeviceLinkRequest request) -> absl::StatusOr<std::unique_ptr<parallel::StageLink>> {
        DeviceGang of_rank = gang;
        of_rank.rank = rank;
        auto link = CudaSupport().MakeLink(of_rank, std::move(request));
        if (!link.ok() || rank != 1) return link;
        return std::make_unique<FailingLink>(*std::move(link), /*left=*/15);
      });
  const absl::Duration start = Clock::Real()->Uptime();
  const auto results = pipeline.Run();
  EXPECT_LT(Clock::Real()->Uptime() - start, absl::Minutes(1));
  EXPECT_THAT(results[1].message, HasSubstr("this rank gives up"));
  for (const size_t rank : {0u, 2u}) {
    EXPECT_NE(results[rank].outcome, run_dir::Outcome::kSucceeded);
    EXPECT_THAT(results[rank].message, HasSubstr("waiting for stage 1"));
    EXPECT_THAT(results[rank].message, HasSubstr("lost"));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelinesOnCuda,
                         ::testing::Values(Layout{"Nccl", {0, 1}, "nccl"},
                                           Layout{"Staged", {0, 1}, "staged"},
                                           Layout{"SharedGpu", {0, 0}, "auto"}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Ranks 0 and 1 are one pipeline, 2 and 3 the other. In the last layout, neighbours share a GPU,
// and the ranks of one stage do not.
TEST(GridsOnCuda, EndWithTheBytesOfOneGpu) {
  for (const char* memory : {"", kSharded}) {
    JobText job = Bitwise(true);
    GangTrainer alone(job, 1, "cuda");
    ExpectSuccess(alone.Run());
    job.more = absl::StrCat(kGrid, memory);
    for (const std::vector<int>& devices :
         std::vector<std::vector<int>>{{0, 1, 2, 3}, {0, 0, 0, 0}, {0, 0, 1, 1}}) {
      SCOPED_TRACE(::testing::PrintToString(devices));
      GangTrainer grid(job, 4, "cuda");
      if (!Place(grid, devices, "auto")) continue;
      ExpectSuccess(grid.Run());
      ExpectSameFiles(grid, alone);
      EXPECT_EQ(grid.Metric("train.loss"), alone.Metric("train.loss"));
    }
  }
}

// Without bitwise and batch norm, each pipeline cuts its replicas into microbatches, and NCCL sums
// in its own order.
TEST(GridsOnCuda, LearnWhatTheCpuLearns) {
  GangTrainer cpu(Job(false), 1, "cpu");
  ExpectSuccess(cpu.Run());
  JobText job = Job(false);
  job.more = kGrid;
  for (const std::vector<int>& devices :
       std::vector<std::vector<int>>{{0, 1, 2, 3}, {0, 0, 0, 0}}) {
    GangTrainer grid(job, 4, "cuda");
    if (!Place(grid, devices, "auto")) continue;
    ExpectSuccess(grid.Run());
    ExpectNear(grid.Metric("train.loss"), cpu.Metric("train.loss"), 2e-3);
    ExpectNear(grid.Metric("test.loss"), cpu.Metric("test.loss"), 2e-3);
  }
}

// Links must not wait for work of the device that waits for other pipelines.
TEST(GridsOnCuda, WaitForTheirSumsOnTheHost) {
  JobText job = Job(false);
  job.more = kGrid;
  GangTrainer grid(job, 4, "cuda");
  if (!Place(grid, {0, 1, 2, 3}, "nccl")) GTEST_SKIP() << "this machine has no four GPUs";
  const DeviceGang gang = {
      .run_dir = grid.dir(), .assignment = grid.assignment(), .transport = "nccl"};
  std::atomic<int> made = 0;
  grid.set_make_exchange([gang, &made](int rank, DeviceExchangeRequest request) {
    DeviceGang of_rank = gang;
    of_rank.rank = rank;
    auto exchange = CudaSupport().MakeExchange(of_rank, std::move(request));
    if (exchange.ok() && (*exchange)->lag() == 0) ++made;
    return exchange;
  });
  ExpectSuccess(grid.Run());
  EXPECT_EQ(made, 4);
}

// Some stages may have no parameters, and so nothing to update.
TEST(GridsOnCuda, MayHaveAStageWithoutParameters) {
  JobText job = Job(false);
  GangTrainer cpu(job, 1, "cpu");
  ExpectSuccess(cpu.Run());
  job.more = R"(, "devices": {"count": 3}, "stages": {"cuts": ["relu1", "conv2"]})";
  GangTrainer pipeline(job, 3, "cuda");
  if (!Place(pipeline, {0, 0, 0}, "auto")) GTEST_SKIP() << "this machine has no GPU";
  ExpectSuccess(pipeline.Run());
  ExpectNear(pipeline.Metric("train.loss"), cpu.Metric("train.loss"), 2e-3);
}

TEST(GridsOnCuda, GoOnFromACheckpointOfOneGpuAndTheOtherWayRound) {
  JobText job = Bitwise(true);
  job.optimizer = R"({"adamw": {"lr": 0.01}, "ema_decay": 0.9})";
  job.more = R"(, "checkpoint": {"every": {"steps": 3}})";
  JobText staged = job;
  staged.more += kTwoStages;
  GangTrainer alone(job, 1, "cuda"), from_pipeline(job, 1, "cuda");
  GangTrainer pipeline(staged, 2, "cuda"), from_one(staged, 2, "cuda");
  if (!Place(pipeline, {0, 0}, "auto") || !Place(from_one, {0, 0}, "auto"))
    GTEST_SKIP() << "this machine has no GPU";
  ExpectSuccess(alone.Run());
  ExpectSuccess(pipeline.Run());
  from_one.assignment().resume_from = checkpoint::CheckpointPath(alone.dir().CheckpointsDir(), 3);
  from_pipeline.assignment().resume_from =
      checkpoint::CheckpointPath(pipeline.dir().CheckpointsDir(), 6);
  ExpectSuccess(from_one.Run());
  ExpectSuccess(from_pipeline.Run());
  ExpectSameFiles(from_one, alone);
  ExpectSameFiles(from_pipeline, alone);
}

// Checkpoints have all slots, whoever kept which of them.
TEST(GridsOnCuda, WithDividedSlotsGoOnFromOtherGangsAndTheOtherWayRound) {
  JobText job = Bitwise(true);
  job.optimizer = R"({"adamw": {"lr": 0.01}, "ema_decay": 0.9})";
  job.more = R"(, "checkpoint": {"every": {"steps": 3}})";
  JobText divided = job, pair = job;
  divided.more += absl::StrCat(kGrid, kSharded);
  pair.more += kSharded;
  GangTrainer alone(job, 1, "cuda");
  ExpectSuccess(alone.Run());
  const auto checkpoint = [](const GangTrainer& gang, int64_t step) {
    return checkpoint::CheckpointPath(gang.dir().CheckpointsDir(), step);
  };
  for (const std::vector<int>& devices :
       std::vector<std::vector<int>>{{0, 1, 2, 3}, {0, 0, 0, 0}, {0, 0, 1, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(devices));
    GangTrainer grid(divided, 4, "cuda"), from_grid(divided, 4, "cuda"),
        from_one(divided, 4, "cuda"), one_from_grid(job, 1, "cuda"),
        pair_from_grid(pair, 2, "cuda");
    bool fits = Place(pair_from_grid, {devices[0], devices[2]}, "auto");
    for (GangTrainer* gang : {&grid, &from_grid, &from_one}) fits &= Place(*gang, devices, "auto");
    if (!fits) continue;
    ExpectSuccess(grid.Run());
    ExpectSameFiles(grid, alone);
    from_grid.assignment().resume_from = checkpoint(grid, 3);
    from_one.assignment().resume_from = checkpoint(alone, 3);
    one_from_grid.assignment().resume_from = checkpoint(grid, 6);
    pair_from_grid.assignment().resume_from = checkpoint(grid, 6);
    for (GangTrainer* gang : {&from_grid, &from_one, &one_from_grid, &pair_from_grid}) {
      ExpectSuccess(gang->Run());
      ExpectSameFiles(*gang, alone);
    }
  }
}

v1::JobSpec SpecOf(const JobText& job) {
  const auto spec = ParseSpec(job.Spec());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

// Each of the two pipelines keeps half of the slots of each stage, as the plan says.
TEST(GridsOnCuda, DivideTheSlotsOfEachStage) {
  JobText job = Job(false);
  job.optimizer = R"({"adamw": {"lr": 0.01}})";
  job.more = kGrid;
  const v1::JobSpec whole = SpecOf(job);
  job.more += kSharded;
  const v1::JobSpec divided = SpecOf(job);
  const auto whole_plan = PlanPipeline(whole, {.backend = "cuda"});
  const auto plan = PlanPipeline(divided, {.backend = "cuda"});
  ASSERT_TRUE(whole_plan.ok() && plan.ok()) << whole_plan.status() << plan.status();
  std::map<int, int64_t> kept;  // by stage
  for (int rank = 0; rank < 4; ++rank) {
    const auto stage = CompileStage(divided, {.backend = "cuda",
                                              .rank = rank,
                                              .world_size = 4,
                                              .replicas = 2,
                                              .memory_bytes = int64_t{8} << 30});
    ASSERT_TRUE(stage.ok()) << stage.status();
    const int64_t bytes = stage->executable->memory_plan().optimizer;
    kept[rank % 2] += bytes;
    const int64_t all = whole_plan->stages[static_cast<size_t>(rank % 2)].memory.optimizer;
    EXPECT_LE(bytes, all / 2 + engine::cuda::kDeviceAlignment);
    if (rank < 2) {
      EXPECT_EQ(bytes, plan->stages[static_cast<size_t>(rank)].memory.optimizer);
    }
  }
  for (const auto& [stage, bytes] : kept) {
    EXPECT_GE(bytes, whole_plan->stages[static_cast<size_t>(stage)].memory.optimizer);
  }
}

// The search for cuts knows that slots are divided.
TEST(GridsOnCuda, FitWhereDividedSlotsDo) {
  JobText job = Job(false);
  job.model = R"({"mlp": {"hidden": [16384, 16384, 16384]}})";
  job.optimizer = R"({"adamw": {"lr": 0.01}})";
  job.train.replace(job.train.find("\"replicas\": 2"), 13, "\"replicas\": 8");
  job.more = R"(, "devices": {"count": 16}, "stages": {"count": 2})";
  PipelinePlanOptions options = {.backend = "cuda", .memory_bytes = 4200000000};
  EXPECT_THAT(PlanPipeline(SpecOf(job), options).status().message(),
              HasSubstr("no cuts into 2 stages let each fit"));
  job.more += kSharded;
  const auto plan = PlanPipeline(SpecOf(job), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
}

TEST(GridsOnCuda, RefuseNcclForStagesThatShareAGpu) {
  JobText job = Job(false);
  job.more = kTwoStages;
  GangTrainer pipeline(job, 2, "cuda");
  if (!Place(pipeline, {0, 0}, "nccl")) GTEST_SKIP() << "this machine has no GPU";
  for (const run_dir::RankResult& result : pipeline.Run()) {
    EXPECT_EQ(result.outcome, run_dir::Outcome::kUserError);
    EXPECT_THAT(result.message, HasSubstr("use --transport staged"));
  }
}

TEST(GridsOnCuda, RefuseALossScale) {
  JobText job = Job(false);
  job.train.replace(job.train.find("F32"), 3, "F16");
  job.more = kTwoStages;
  GangTrainer pipeline(job, 2, "cuda");
  if (!Place(pipeline, {0, 0}, "auto")) GTEST_SKIP() << "this machine has no GPU";
  const std::vector<run_dir::RankResult> results = pipeline.Run();
  EXPECT_EQ(results[0].outcome, run_dir::Outcome::kUserError);
  EXPECT_THAT(results[0].message, HasSubstr("loss scale"));
  // The other stage waits for its turn to measure on the GPU, and hears no more of the first one.
  EXPECT_EQ(results[1].reason, "PEER_LOST") << results[1].message;
}

}  // namespace
}  // namespace trainyard::trainer
