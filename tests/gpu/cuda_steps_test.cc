// Tests properties of steps on a device beyond the numbers of a single step: graphs, updates in
// flight, repeatable bits, losses that are not finite, the loss scale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using testing::NamedValues;
using testing::TestBatch;
using testing::Values;

constexpr OptimizerSpec kMomentum = {.momentum = 0.9, .weight_decay = 1e-3};

Graph SmallResnet() {
  return *BuildResnet({.input = {3, 8, 8}, .depth = 20, .stem = Stem::kCifar, .classes = 10});
}

Graph SmallConvnet() {
  return *BuildConvnet({.input = {3, 12, 12}, .channels = {8, 16}, .classes = 10});
}

struct Trained {
  std::vector<double> losses;
  NamedValues state;
};

std::unique_ptr<Executable> Start(const Graph& model, const CompileOptions& options) {
  auto executable = testing::Compile("cuda", model, kMomentum, options);
  testing::RandomizeState(1, *executable);
  return executable;
}

// Steps [begin, end) of batches of 6 rows, the last of 4.
void Train(Executable& executable, const Graph& model, int begin, int end, Trained& trained) {
  for (int step = begin; step < end; ++step) {
    const int64_t rows = step == end - 1 ? 4 : 6;
    const TestBatch batch = testing::RandomBatch(static_cast<uint64_t>(step) + 10, model, rows);
    const absl::Status started = executable.StartStep(batch.batch(), 0.01);
    ASSERT_TRUE(started.ok()) << started;
    const auto metrics = executable.FinishUpdate();
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    trained.losses.push_back(metrics->loss);
  }
  trained.state = testing::ReadAllState(executable);
}

Trained TrainAll(const Graph& model, const CompileOptions& options, int steps = 5) {
  Trained trained;
  const auto executable = Start(model, options);
  Train(*executable, model, 0, steps, trained);
  return trained;
}

class CudaSteps : public ::testing::TestWithParam<Precision> {};

TEST_P(CudaSteps, AreTheSameBitsWithAndWithoutGraphs) {
  for (const Graph& model : {SmallConvnet(), SmallResnet()}) {
    CompileOptions options = {.max_rows = 6, .precision = GetParam()};
    const Trained captured = TrainAll(model, options);
    options.captures = false;
    const Trained enqueued = TrainAll(model, options);
    EXPECT_EQ(captured.losses, enqueued.losses);
    EXPECT_EQ(captured.state, enqueued.state);
  }
}

TEST_P(CudaSteps, GoOnFromAStateWithTheSameBits) {
  const Graph model = SmallResnet();
  const CompileOptions options = {.max_rows = 6, .precision = GetParam()};
  Trained whole;
  const auto undisturbed = Start(model, options);
  Train(*undisturbed, model, 0, 3, whole);
  const auto resumed = testing::Compile("cuda", model, kMomentum, options);
  testing::CopyState(*undisturbed, *resumed);
  Trained rest;
  Train(*undisturbed, model, 3, 6, whole);
  Train(*resumed, model, 3, 6, rest);
  EXPECT_EQ(rest.state, whole.state);
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
}

TEST_P(CudaSteps, TellTheirMetricsInOrderWhileTheNextIsOnItsWay) {
  const Graph model = SmallConvnet();
  const CompileOptions options = {.max_rows = 6, .precision = GetParam()};
  const Trained waited = TrainAll(model, options, 6);
  const auto executable = Start(model, options);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    const TestBatch batch =
        testing::RandomBatch(static_cast<uint64_t>(step) + 10, model, step == 5 ? 4 : 6);
    ASSERT_TRUE(executable->StartStep(batch.batch(), 0.01).ok());
    if (step + 1 < executable->max_updates_in_flight()) continue;
    losses.push_back(executable->FinishUpdate()->loss);
  }
  while (losses.size() < 6) losses.push_back(executable->FinishUpdate()->loss);
  EXPECT_EQ(losses, waited.losses);
  EXPECT_EQ(testing::ReadAllState(*executable), waited.state);
  EXPECT_EQ(executable->FinishUpdate().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(CudaSteps, OfSeveralBatchesAreTheirSum) {
  const Graph model = SmallConvnet();
  const CompileOptions options = {.max_rows = 6, .precision = GetParam()};
  const TestBatch batch = testing::RandomBatch(3, model, 6);
  const auto whole = Start(model, options);
  const auto parts = Start(model, options);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(whole->Accumulate(batch.batch(), 1, nullptr).ok());
    for (const int64_t begin : {0, 2, 4}) {
      ASSERT_TRUE(parts->Accumulate(batch.Rows(begin, begin + 2).batch(), 1.0 / 3, nullptr).ok());
    }
    EXPECT_NEAR(whole->Update(0.01)->loss, parts->Update(0.01)->loss, 1e-2);
  }
  testing::ExpectNear(testing::ReadAllState(*parts), testing::ReadAllState(*whole), 2e-2);
}

// Sums that are told in parts, and what is known of the calls that told of them.
struct ToldSums {
  std::vector<std::vector<float>> sums;  // by step
  std::vector<int64_t> ends;             // of the last step
};

ToldSums AccumulateInParts(const Graph& model, const CompileOptions& options,
                           const std::vector<int64_t>& ready_ends) {
  ToldSums told;
  const auto executable = Start(model, options);
  executable->set_ready_ends(ready_ends);
  const TestBatch batch = testing::RandomBatch(3, model, 6);
  for (int step = 0; step < 4; ++step) {
    told.ends = {0};
    const auto on_ready = [&told](int64_t offset, int64_t count) {
      EXPECT_EQ(offset, told.ends.back());
      told.ends.push_back(offset + count);
    };
    EXPECT_TRUE(executable->Accumulate(batch.batch(), 1, on_ready).ok());
    EXPECT_EQ(told.ends.back(), static_cast<int64_t>(executable->reduction().size()));
    std::vector<float>& sums = told.sums.emplace_back(executable->reduction().size());
    EXPECT_TRUE(executable->ReadReduction(absl::MakeSpan(sums)).ok());
    EXPECT_TRUE(executable->Update(0.01).ok());
  }
  return told;
}

// With ends, what lies between them is recorded from the second step on.
TEST_P(CudaSteps, ToldInPartsHaveTheSameSumsRecordedAndCallByCall) {
  const Graph model = SmallResnet();
  CompileOptions options = {.max_rows = 6, .precision = GetParam()};
  const ToldSums fine = AccumulateInParts(model, options, {});
  ASSERT_GT(fine.ends.size(), 10U);
  const int64_t size = fine.ends.back();
  const ToldSums coarse = AccumulateInParts(model, options, {size / 4, size / 2, size});
  options.captures = false;
  const ToldSums enqueued = AccumulateInParts(model, options, {size / 4, size / 2, size});
  EXPECT_EQ(coarse.sums, fine.sums);
  EXPECT_EQ(enqueued.sums, fine.sums);
  // The calls come where the ends are reached, at the end of backward, and at last for what it does
  // not make.
  ASSERT_EQ(coarse.ends.size(), 5U);
  for (const int64_t end : coarse.ends) EXPECT_THAT(fine.ends, ::testing::Contains(end));
  for (size_t i = 1; i <= 2; ++i) {
    const auto reached =
        std::lower_bound(fine.ends.begin(), fine.ends.end(), static_cast<int64_t>(i) * (size / 4));
    EXPECT_EQ(coarse.ends[i], *reached);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaSteps,
                         ::testing::Values(Precision::kF32, Precision::kTf32, Precision::kBf16,
                                           Precision::kF16),
                         [](const ::testing::TestParamInfo<Precision>& test) {
                           return std::string(PrecisionName(test.param));
                         });

TEST(CudaLoss, ThatIsNotFiniteIsToldWithoutWaitingInTheStep) {
  const Graph model = SmallConvnet();
  const auto executable = Start(model, {.max_rows = 6});
  TestBatch batch = testing::RandomBatch(3, model, 6);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(executable->StartStep(batch.batch(), 0.01).ok());
    EXPECT_TRUE(std::isfinite(executable->FinishUpdate()->loss));
  }
  batch.inputs[100] = std::nanf("");
  ASSERT_TRUE(executable->StartStep(batch.batch(), 0.01).ok());
  EXPECT_TRUE(std::isnan(executable->FinishUpdate()->loss));
}

TEST(CudaLossScale, IsHalvedAndTheUpdateLeftOutWhereGradientsOverflow) {
  const Graph model = SmallConvnet();
  const auto executable = Start(model, {.max_rows = 6, .precision = Precision::kF16});
  EXPECT_EQ(testing::ReadState(*executable, "loss_scale"), (Values{65536, 0}));
  testing::WriteState(*executable, "loss_scale", {16777216, 1999});
  const NamedValues before = testing::ReadAllState(*executable);
  TestBatch batch = testing::RandomBatch(3, model, 6);
  for (float& input : batch.inputs) input *= 100;
  ASSERT_TRUE(executable->StartStep(batch.batch(), 0.01).ok());
  EXPECT_TRUE(std::isfinite(executable->FinishUpdate()->loss));
  NamedValues after = testing::ReadAllState(*executable);
  EXPECT_EQ(after["loss_scale"], (Values{8388608, 0}));
  after["loss_scale"] = before.at("loss_scale");
  EXPECT_EQ(after, before);
}

TEST(CudaLossScale, ChangesNoNumberThatF16CanHold) {
  const Graph model = SmallConvnet();
  Values state[2];
  for (const int time : {0, 1}) {
    const auto executable = Start(model, {.max_rows = 6, .precision = Precision::kF16});
    testing::WriteState(*executable, "loss_scale", {time == 0 ? 128.0F : 256.0F, 0});
    Trained trained;
    Train(*executable, model, 0, 3, trained);
    state[time] = trained.state.at("conv1.weight");
    EXPECT_EQ(trained.state.at("loss_scale")[1], 3);
  }
  testing::ExpectNear(state[0], state[1], 1e-4, "conv1.weight");
}

TEST(CudaFusions, OfStatisticsIntoConvolutionsKeepTheNumbers) {
  const Graph model = SmallResnet();
  const TestBatch batch = testing::RandomBatch(3, model, 6);
  NamedValues gradients[2];
  int64_t difference = 0;
  for (const Fusions fusions : {Fusions::kNever, Fusions::kAlways}) {
    const auto backend = *MakeCudaBackend({.autotunes = false, .fusions = fusions});
    const CompileOptions options = {.max_rows = 6};
    const auto executable = *backend->Compile(model, kMomentum, options);
    testing::RandomizeState(1, *executable);
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    gradients[fusions == Fusions::kAlways ? 1 : 0] = testing::Gradients(model, *executable);
    difference += (fusions == Fusions::kAlways ? 1 : -1) *
                  backend->Plan(model, kMomentum, options)->memory.activations_unshared;
  }
  EXPECT_NE(difference, 0) << "the plans are the same: nothing was fused";
  testing::ExpectNear(gradients[1], gradients[0], 1e-3);
}

// The CPU's tests compare it with the reference too, so this is also the CPU's curve.
TEST(CudaTraining, FollowsTheReferencesLossCurve) {
  const Graph model = SmallConvnet();
  const auto cuda = Start(model, {.max_rows = 6});
  const auto reference = testing::Compile("reference", model, kMomentum, {.max_rows = 6});
  testing::CopyState(*cuda, *reference);
  for (int step = 0; step < 30; ++step) {
    const TestBatch batch = testing::RandomBatch(static_cast<uint64_t>(step % 4), model, 6);
    ASSERT_TRUE(cuda->StartStep(batch.batch(), 0.005).ok());
    ASSERT_TRUE(reference->StartStep(batch.batch(), 0.005).ok());
    const double expected = reference->FinishUpdate()->loss;
    EXPECT_NEAR(cuda->FinishUpdate()->loss, expected, 1e-3 * std::max(1.0, expected)) << step;
  }
}

}  // namespace
}  // namespace trainyard::engine
