// Tests real stages on threads, with real lines between them: together they train the same as one
// device, to the byte, with every schedule, and also with several pipelines side by side.
#include "worker/trainer/pipeline/pipeline_executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/graph/split.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"
#include "worker/parallel/local/local_communicator.h"
#include "worker/parallel/shm/shm_communicator.h"
#include "worker/parallel/sum_tree.h"
#include "worker/trainer/pipeline/pipeline_state.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::trainer {
namespace {

using engine::testing::NamedValues;
using engine::testing::TestBatch;
using parallel::Communicator;
using parallel::PipelineSchedule;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr int64_t kRows = 12;
const engine::OptimizerSpec kOptimizer = {
    .rule = engine::OptimizerSpec::Rule::kAdamW, .weight_decay = 0.01, .ema_decay = 0.9};

engine::Graph Convnet(bool batch_norm) {
  return *engine::BuildConvnet(
      {.input = {2, 8, 8}, .channels = {4, 6}, .classes = 5, .batch_norm = batch_norm});
}

// One rank of a pipeline.
struct Rank {
  int stage = 0;
  std::unique_ptr<PipelineExecutable> executable;
  std::unique_ptr<Communicator> pipeline;  // all stages
};

// Runs `work` for each stage on a thread of its own; statuses by stage.
class Pipeline {
 public:
  Pipeline(const engine::Graph& model, std::vector<std::string> cuts, PipelineSchedule schedule,
           int microbatches, int step_batches, int sum_slots = 0)
      : model_(model), cuts_(std::move(cuts)) {
    const int stages = static_cast<int>(cuts_.size()) + 1;
    const auto backend = engine::MakeBackend("cpu");
    const auto gang = parallel::MakeLocalGroup(stages);
    std::vector<std::shared_ptr<parallel::LocalGroup>> down;
    std::vector<std::shared_ptr<parallel::LocalGroup>> up;
    for (int s = 0; s + 1 < stages; ++s) {
      down.push_back(parallel::MakeLocalGroup(2));
      up.push_back(parallel::MakeLocalGroup(2));
    }
    for (int s = 0; s < stages; ++s) {
      auto made = PipelineExecutable::Create(**backend, model, cuts_, kOptimizer,
                                             {.threads = 1, .sum_slots = sum_slots},
                                             {.schedule = schedule,
                                              .stages = stages,
                                              .stage = s,
                                              .microbatches = microbatches,
                                              .batch_rows = kRows,
                                              .step_batches = step_batches},
                                             *Clock::Real());
      EXPECT_TRUE(made.ok()) << made.status();
      PipelineLinks links;
      const int slots = (*made)->slots();
      if (s > 0) {
        const auto before = static_cast<size_t>(s) - 1;
        links.before = std::make_unique<parallel::HostStageLink>(
            parallel::HostLines{Connect(down[before], 1), Connect(up[before], 1), 0}, slots);
      }
      if (s + 1 < stages) {
        const auto after = static_cast<size_t>(s);
        links.after = std::make_unique<parallel::HostStageLink>(
            parallel::HostLines{Connect(up[after], 0), Connect(down[after], 0), 1}, slots);
      }
      (*made)->Connect(std::move(links));
      ranks_.push_back({s, *std::move(made), Connect(gang, s)});
    }
  }

  void Run(const std::function<absl::Status(Rank&)>& work) {
    std::vector<absl::Status> statuses(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t s = 0; s < ranks_.size(); ++s) {
      threads.emplace_back([&, s] { statuses[s] = work(ranks_[s]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }

  void Load(const engine::ModelState& whole) {
    const auto tensors = StateOfStages(model_, cuts_, kOptimizer);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    Run([&](Rank& rank) {
      const auto give = [&](size_t i) -> absl::StatusOr<std::vector<float>> {
        return engine::testing::ReadState(whole, whole.state()[i].name);
      };
      return ScatterState(*tensors, give, *rank.pipeline, *rank.executable);
    });
  }

  // The parameters are in the order of the whole model.
  std::vector<std::pair<std::string, std::vector<float>>> State() {
    const auto tensors = StateOfStages(model_, cuts_, kOptimizer);
    std::vector<std::pair<std::string, std::vector<float>>> all;
    Run([&](Rank& rank) {
      const auto take = [&](size_t i, std::vector<float> values) {
        EXPECT_EQ(rank.stage, 0);
        all.emplace_back((*tensors)[i].tensor.name, std::move(values));
        return absl::OkStatus();
      };
      return GatherState(*tensors, *rank.executable, *rank.pipeline, take);
    });
    return all;
  }

  Rank& rank(size_t s) { return ranks_[s]; }

 private:
  static std::unique_ptr<Communicator> Connect(const std::shared_ptr<parallel::LocalGroup>& group,
                                               int rank) {
    auto communicator = parallel::MakeLocalCommunicator(group, rank);
    communicator->set_timeout(kTimeout);
    return communicator;
  }

  const engine::Graph model_;
  const std::vector<std::string> cuts_;
  std::vector<Rank> ranks_;
};

std::unique_ptr<engine::Executable> Whole(const engine::Graph& model, int sum_slots = 0) {
  auto whole = engine::testing::Compile("cpu", model, kOptimizer,
                                        {.max_rows = kRows, .threads = 1, .sum_slots = sum_slots});
  engine::testing::RandomizeState(3, *whole);
  return whole;
}

void ExpectSameState(Pipeline& pipeline, const engine::Executable& whole) {
  const auto state = pipeline.State();
  ASSERT_EQ(state.size(), whole.state().size());
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].first, whole.state()[i].name);
    EXPECT_EQ(state[i].second, engine::testing::ReadState(whole, state[i].first)) << state[i].first;
  }
}

absl::Status Step(Rank& rank, const TestBatch& batch, engine::StepMetrics& metrics) {
  absl::Status status = rank.executable->Accumulate(batch.batch(), 1, nullptr);
  if (!status.ok()) return status;
  const auto updated = rank.executable->Update(0.01);
  if (!updated.ok()) return updated.status();
  metrics = *updated;
  return absl::OkStatus();
}

// Computes the same microbatches one after the other.
engine::StepMetrics StepWhole(engine::Executable& whole, const TestBatch& batch, int microbatches) {
  for (int m = 0; m < microbatches; ++m) {
    const parallel::RowRange range = parallel::ReplicaRows(kRows, m, microbatches);
    const double weight = static_cast<double>(range.size()) / kRows;
    EXPECT_TRUE(whole.Accumulate(batch.Rows(range.begin, range.end).batch(), weight, nullptr).ok());
  }
  const auto metrics = whole.Update(0.01);
  EXPECT_TRUE(metrics.ok());
  return *metrics;
}

TEST(PipelineExecutables, TrainToTheByteWhatOneDeviceTrainsInEverySchedule) {
  const engine::Graph model = Convnet(false);
  for (const PipelineSchedule schedule :
       {PipelineSchedule::kSequential, PipelineSchedule::kGpipe, PipelineSchedule::k1F1B}) {
    for (const int microbatches : {1, 2, 5, 8}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(schedule) << " " << microbatches);
      Pipeline pipeline(model, {"max_pool1", "conv2", "fc"}, schedule, microbatches, 1);
      const auto whole = Whole(model);
      pipeline.Load(*whole);
      for (uint64_t step = 0; step < 3; ++step) {
        const TestBatch batch = engine::testing::RandomBatch(step, model, kRows);
        std::vector<engine::StepMetrics> metrics(4);
        pipeline.Run([&](Rank& rank) {
          return Step(rank, batch, metrics[static_cast<size_t>(rank.stage)]);
        });
        const engine::StepMetrics expected = StepWhole(*whole, batch, microbatches);
        for (const engine::StepMetrics& each : metrics) {
          EXPECT_EQ(each.loss, expected.loss);
          EXPECT_EQ(each.accuracy, expected.accuracy);
        }
      }
      ExpectSameState(pipeline, *whole);
    }
  }
}

TEST(PipelineExecutables, ALayerADeviceIsThatToo) {
  const engine::Graph model = Convnet(false);
  Pipeline pipeline(model, {"relu1", "max_pool1", "conv2", "relu2", "max_pool2", "fc", "loss"},
                    PipelineSchedule::kSequential, 1, 1);
  const auto whole = Whole(model);
  pipeline.Load(*whole);
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  std::vector<engine::StepMetrics> metrics(8);
  pipeline.Run(
      [&](Rank& rank) { return Step(rank, batch, metrics[static_cast<size_t>(rank.stage)]); });
  EXPECT_EQ(metrics[0].loss, StepWhole(*whole, batch, 1).loss);
  ExpectSameState(pipeline, *whole);
}

// Replicas with batch norm, summed in the tree of a bitwise run, each a microbatch.
TEST(PipelineExecutables, SumReplicasInTheTreeOfABitwiseRun) {
  const engine::Graph model = Convnet(true);
  constexpr int kReplicas = 6;
  const parallel::LocalSums sums = parallel::PlanLocalSums(kReplicas, {0, kReplicas});
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  const auto rows_of = [&](int replica) {
    const parallel::RowRange range = parallel::ReplicaRows(kRows, replica, kReplicas);
    return batch.Rows(range.begin, range.end);
  };
  std::vector<TestBatch> parts;
  parts.reserve(kReplicas);
  for (int r = 0; r < kReplicas; ++r) parts.push_back(rows_of(r));
  const auto sum = [&](engine::Executable& executable, size_t replica) {
    const parallel::ReplicaSum& plan = sums.replicas[replica];
    const auto size = static_cast<int64_t>(executable.reduction().size());
    for (const int slot : plan.add) {
      absl::Status status = executable.sum_slots()->AddSums(slot, 0, size);
      if (!status.ok()) return status;
    }
    return plan.store >= 0 ? executable.sum_slots()->StoreSums(plan.store) : absl::OkStatus();
  };
  const auto whole = Whole(model, sums.slots);
  Pipeline pipeline(model, {"relu1", "conv2"}, PipelineSchedule::k1F1B, 1, kReplicas, sums.slots);
  pipeline.Load(*whole);
  for (size_t r = 0; r < parts.size(); ++r) {
    ASSERT_TRUE(whole->Accumulate(parts[r].batch(), 1.0 / kReplicas, nullptr).ok());
    ASSERT_TRUE(sum(*whole, r).ok());
  }
  ASSERT_TRUE(whole->Update(0.1).ok());
  pipeline.Run([&](Rank& rank) {
    std::vector<PipelineExecutable::Part> all;
    all.reserve(parts.size());
    for (const TestBatch& part : parts) all.push_back({part.batch(), 1.0 / kReplicas});
    const absl::Status status = rank.executable->AccumulateAll(
        all, nullptr, [&](size_t part) { return sum(*rank.executable, part); });
    return status.ok() ? rank.executable->Update(0.1).status() : status;
  });
  ASSERT_EQ(sums.term_slots, std::vector<int>({-1}));
  ExpectSameState(pipeline, *whole);
}

// Two pipelines of two stages: same stages add up their reductions.
TEST(PipelineExecutables, StandInAGrid) {
  const engine::Graph model = Convnet(false);
  const auto whole = Whole(model);
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  std::vector<std::unique_ptr<Pipeline>> grid;
  std::vector<std::shared_ptr<parallel::LocalGroup>> same_stage;
  for (int i = 0; i < 2; ++i) {
    grid.push_back(std::make_unique<Pipeline>(model, std::vector<std::string>{"conv2"},
                                              PipelineSchedule::k1F1B, 3, 1));
    grid.back()->Load(*whole);
    same_stage.push_back(parallel::MakeLocalGroup(2));
  }
  const auto half = [&](int64_t pipeline) { return batch.Rows(pipeline * 6, pipeline * 6 + 6); };
  const auto run = [&](int number) {
    const TestBatch mine = half(number);
    grid[static_cast<size_t>(number)]->Run([&](Rank& rank) -> absl::Status {
      const auto group =
          parallel::MakeLocalCommunicator(same_stage[static_cast<size_t>(rank.stage)], number);
      group->set_timeout(kTimeout);
      absl::Status status = rank.executable->Accumulate(mine.batch(), 0.5, nullptr);
      if (status.ok()) status = group->AllReduce(rank.executable->reduction());
      return status.ok() ? rank.executable->Update(0.1).status() : status;
    });
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  ASSERT_TRUE(whole->Accumulate(half(0).batch(), 0.5, nullptr).ok());
  ASSERT_TRUE(whole->Accumulate(half(1).batch(), 0.5, nullptr).ok());
  ASSERT_TRUE(whole->Update(0.1).ok());
  const auto state = grid[0]->State();
  EXPECT_EQ(grid[1]->State(), state);
  for (const auto& [name, values] : state) {
    engine::testing::ExpectNear(values, engine::testing::ReadState(*whole, name), 1e-3, name);
  }
}

// A training is begun in one, written to files, and continued in the other. The result must be the
// same as without the change.
TEST(PipelineExecutables, ACheckpointGoesOnWithoutThePipelineAndTheOtherWayRound) {
  const engine::Graph model = Convnet(true);
  const std::vector<std::string> cuts = {"conv2"};
  const auto tensors = StateOfStages(model, cuts, kOptimizer);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  const trainyard::testing::TempDir folder;
  const auto write = [&](const engine::ModelState& state, int64_t step) {
    const auto snapshot = TakeSnapshot(state, step, 0, {.spec_json = "{}"});
    EXPECT_TRUE(snapshot.ok()) << snapshot.status();
    const absl::Status written =
        checkpoint::WriteCheckpoint(folder.path(), step, EncodeSnapshot(*snapshot));
    EXPECT_TRUE(written.ok()) << written;
    std::vector<std::string> damaged;
    const auto latest = checkpoint::FindLatestValid(folder.path(), damaged);
    EXPECT_TRUE(latest.ok()) << latest.status();
    return latest->path;
  };
  const auto step_pipeline = [&](Pipeline& pipeline) {
    pipeline.Run([&](Rank& rank) {
      engine::StepMetrics metrics;
      return Step(rank, batch, metrics);
    });
  };
  const auto undisturbed = Whole(model);

  // One step is made in a pipeline, and one without.
  Pipeline before(model, cuts, PipelineSchedule::k1F1B, 1, 1);
  before.Load(*undisturbed);
  // One step is made without a pipeline, and one in a pipeline.
  const auto started = Whole(model);
  for (int step = 0; step < 2; ++step) StepWhole(*undisturbed, batch, 1);

  step_pipeline(before);
  HeldState gathered(*tensors);
  const auto state = before.State();
  for (size_t i = 0; i < state.size(); ++i) {
    ASSERT_TRUE(gathered.WriteState(i, state[i].second).ok());
  }
  const auto after = Whole(model);
  const auto restored = RestoreState(write(gathered, 1), *after);
  ASSERT_TRUE(restored.ok()) << restored.status();
  StepWhole(*after, batch, 1);
  EXPECT_EQ(engine::testing::ReadAllState(*after), engine::testing::ReadAllState(*undisturbed));

  StepWhole(*started, batch, 1);
  HeldState read(*tensors);
  const auto again = RestoreState(write(*started, 2), read);
  ASSERT_TRUE(again.ok()) << again.status();
  Pipeline resumed(model, cuts, PipelineSchedule::k1F1B, 1, 1);
  resumed.Load(read);
  step_pipeline(resumed);
  ExpectSameState(resumed, *undisturbed);
}

TEST(PipelineExecutables, EvaluateLikeOneDevice) {
  const engine::Graph model = Convnet(true);
  const auto whole = Whole(model);
  Pipeline pipeline(model, {"max_pool1", "fc"}, PipelineSchedule::k1F1B, 3, 1);
  pipeline.Load(*whole);
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  std::vector<engine::Evaluation> results(3);
  for (int twice = 0; twice < 2; ++twice) {
    pipeline.Run([&](Rank& rank) {
      const auto result = rank.executable->Evaluate(batch.batch());
      if (result.ok()) results[static_cast<size_t>(rank.stage)] = *result;
      return result.status();
    });
  }
  EXPECT_EQ(results[0].rows, 0);
  EXPECT_EQ(results[1].rows, 0);
  const auto expected = whole->Evaluate(batch.batch());
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(results[2].rows, kRows);
  EXPECT_EQ(results[2].correct, expected->correct);
  EXPECT_EQ(results[2].top5, expected->top5);
  EXPECT_NEAR(results[2].loss_sum, expected->loss_sum, 1e-5 * expected->loss_sum);
}

TEST(PipelineExecutables, ASpoiledGradientOfAnyStageReachesAll) {
  const engine::Graph model = Convnet(false);
  const auto whole = Whole(model);
  Pipeline pipeline(model, {"conv2", "fc"}, PipelineSchedule::kGpipe, 2, 1);
  pipeline.Load(*whole);
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  std::vector<engine::StepMetrics> metrics(3);
  pipeline.Run([&](Rank& rank) -> absl::Status {
    const absl::Status status = rank.executable->Accumulate(batch.batch(), 1, nullptr);
    if (rank.stage == 1) rank.executable->reduction()[0] = NAN;
    const auto updated = rank.executable->Update(0.01);
    if (updated.ok()) metrics[static_cast<size_t>(rank.stage)] = *updated;
    return status.ok() ? updated.status() : status;
  });
  for (const engine::StepMetrics& each : metrics) EXPECT_TRUE(std::isnan(each.loss));
}

TEST(PipelineExecutables, AStageWhoseNeighbourIsGoneSaysForWhichItWaited) {
  const engine::Graph model = Convnet(false);
  Pipeline pipeline(model, {"conv2"}, PipelineSchedule::k1F1B, 2, 1);
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  pipeline.rank(0).executable.reset();
  const absl::Status status = pipeline.rank(1).executable->Accumulate(batch.batch(), 1, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("stage 1 waiting for stage 0"));
}

// This is how ranks of one host communicate: three stages, over the memory that they share.
TEST(PipelineExecutables, TalkOverSharedMemory) {
  const engine::Graph model = Convnet(false);
  const std::vector<std::string> cuts = {"conv2", "fc"};
  const auto whole = Whole(model);
  const auto tensors = StateOfStages(model, cuts, kOptimizer);
  const trainyard::testing::TempDir folder;
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  const auto backend = engine::MakeBackend("cpu");
  std::vector<std::pair<std::string, std::vector<float>>> state;
  const auto run = [&](int stage) -> absl::Status {
    const auto connect = [&](const parallel::Group& group) {
      parallel::ShmOptions options;
      options.rank = stage;
      options.world_size = 3;
      options.group = group;
      options.run_dir = run_dir::RunDir(folder.path());
      options.timeout = kTimeout;
      return parallel::ConnectShm(options);
    };
    auto gang = connect({});
    if (!gang.ok()) return gang.status();
    auto made = PipelineExecutable::Create(
        **backend, model, cuts, kOptimizer, {.threads = 1},
        {.stages = 3, .stage = stage, .microbatches = 4, .batch_rows = kRows}, *Clock::Real());
    if (!made.ok()) return made.status();
    auto links = ConnectNeighbours(
        connect, 0, 3, stage,
        [&](NeighbourLines lines) -> absl::StatusOr<std::unique_ptr<parallel::StageLink>> {
          return std::make_unique<parallel::HostStageLink>(std::move(lines.host), (*made)->slots());
        });
    if (!links.ok()) return links.status();
    Rank rank = {stage, *std::move(made), *std::move(gang)};
    rank.executable->Connect(*std::move(links));
    const auto give = [&](size_t i) -> absl::StatusOr<std::vector<float>> {
      return engine::testing::ReadState(*whole, whole->state()[i].name);
    };
    absl::Status status = ScatterState(*tensors, give, *rank.pipeline, *rank.executable);
    engine::StepMetrics metrics;
    for (int step = 0; status.ok() && step < 5; ++step) status = Step(rank, batch, metrics);
    if (!status.ok()) return status;
    return GatherState(*tensors, *rank.executable, *rank.pipeline,
                       [&](size_t i, std::vector<float> values) {
                         state.emplace_back((*tensors)[i].tensor.name, std::move(values));
                         return absl::OkStatus();
                       });
  };
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int s = 0; s < 3; ++s) {
    threads.emplace_back([&, s] { statuses[static_cast<size_t>(s)] = run(s); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
  for (int step = 0; step < 5; ++step) StepWhole(*whole, batch, 4);
  ASSERT_EQ(state.size(), whole->state().size());
  for (const auto& [name, values] : state) {
    EXPECT_EQ(values, engine::testing::ReadState(*whole, name)) << name;
  }
}

TEST(PipelineExecutables, MeasureHowLongTheyCompute) {
  const engine::Graph model = Convnet(false);
  Pipeline pipeline(model, {"conv2"}, PipelineSchedule::k1F1B, 4, 1);
  const TestBatch batch = engine::testing::RandomBatch(1, model, kRows);
  pipeline.Run([&](Rank& rank) {
    engine::StepMetrics metrics;
    return Step(rank, batch, metrics);
  });
  for (const size_t s : {0u, 1u}) {
    const PipelineTimes& times = pipeline.rank(s).executable->times();
    EXPECT_GT(times.computed, absl::ZeroDuration());
    EXPECT_GE(times.total, times.computed);
  }
}

TEST(PipelineExecutables, RefuseWhatStagesCannotDo) {
  const engine::Graph model = Convnet(false);
  const auto backend = engine::MakeBackend("cpu");
  const auto refuse = [&](const std::vector<std::string>& cuts,
                          const engine::OptimizerSpec& optimizer,
                          const engine::CompileOptions& options = {}) {
    const auto made = PipelineExecutable::Create(**backend, model, cuts, optimizer, options,
                                                 {.stages = 2}, *Clock::Real());
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  EXPECT_THAT(refuse({"conv2"}, {.clip_norm = 1}), HasSubstr("clip_norm 1 takes the norm of all"));
  EXPECT_THAT(refuse({"conv2"}, {}, {.precision = engine::Precision::kF16}),
              HasSubstr("precision f16 has a loss scale that follows all gradients"));
  EXPECT_THAT(refuse({}, {}), HasSubstr("0 cuts; expected 1 of 2 stages"));
  EXPECT_THAT(refuse({"conv9"}, {}), HasSubstr("no layer 'conv9'"));
}

}  // namespace
}  // namespace trainyard::trainer
