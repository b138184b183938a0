// Tests updates in ranges, and partial sums, which ranks that share the work of an update call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "common/base/shared_memory.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {
namespace {

using Rule = OptimizerSpec::Rule;
using testing::Compile;
using testing::TestBatch;
using testing::Values;

// Matrices (one larger than two blocks of the cpu backend), biases, and a norm.
Graph Model() {
  GraphBuilder b({2, 6, 6});
  ValueId x = b.Conv2d("conv", b.input(), {.channels = 3, .kernel = 3});
  x = b.Relu(b.BatchNorm("bn", x));
  x = b.Tanh(b.Linear("fc1", b.Flatten(x), 240));
  b.SoftmaxCrossEntropy(b.Linear("fc2", x, 4));
  return *std::move(b).Build();
}

struct Case {
  const char* name;
  OptimizerSpec spec;
};

const Case kElementwise[] = {
    {"sgd", {.weight_decay = 0.01}},
    {"sgd_nesterov", {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}},
    {"sgd_groups",
     {.momentum = 0.9, .weight_decay = 0.1, .decay_bias_and_norm = false, .ema_decay = 0.6}},
    {"adam", {.rule = Rule::kAdam, .weight_decay = 0.05}},
    {"adamw", {.rule = Rule::kAdamW, .weight_decay = 0.05}},
    {"adamw_average",
     {.rule = Rule::kAdamW, .weight_decay = 0.1, .decay_bias_and_norm = false, .ema_decay = 0.9}},
};

const Case kWithNorms[] = {
    {"clipped", {.clip_norm = 0.3}},
    {"lars", {.rule = Rule::kLars, .trust_coefficient = 0.02}},
    {"lamb", {.rule = Rule::kLamb}},
};

int64_t ParametersOf(Executable& executable) {
  const ReductionLayout layout = LayOutReduction(BuildTrainingStep(Model(), {}));
  EXPECT_EQ(layout.size, static_cast<int64_t>(executable.reduction().size()));
  return layout.gradient_elements;
}

struct Range {
  int64_t begin;
  int64_t end;
};

// [0, size) in `parts` ranges at any borders, in any order.
std::vector<Range> RandomCut(uint64_t seed, int64_t size, int parts) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> borders = {0, size};
  for (int i = 1; i < parts; ++i) {
    borders.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(size)));
  }
  std::sort(borders.begin(), borders.end());
  std::vector<Range> ranges;
  for (size_t i = 1; i < borders.size(); ++i) ranges.push_back({borders[i - 1], borders[i]});
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

// Random ones, and zeros between the tensors.
Values Sums(uint64_t seed, Executable& executable) {
  const ReductionLayout layout = LayOutReduction(BuildTrainingStep(Model(), {}));
  const Values random = testing::RandomValues(seed, layout.size);
  Values sums(executable.reduction().size(), 0.0f);
  for (const ReductionEntry& entry : layout.entries) {
    std::copy_n(random.begin() + entry.offset, entry.count, sums.begin() + entry.offset);
  }
  return sums;
}

// Returns the memory of slots and averages. It is whole, and stays, if no ranges are owned.
std::vector<absl::Span<float>> StatesOf(Executable& executable) {
  std::vector<absl::Span<float>> states;
  const auto add = [&states](absl::Span<float> state) {
    states.push_back(state);
    return absl::OkStatus();
  };
  EXPECT_TRUE(executable.range_update()->CompleteStates(add, /*reads=*/false).ok());
  return states;
}

class UpdateRanges : public ::testing::TestWithParam<std::tuple<Case, std::string>> {
 protected:
  std::unique_ptr<Executable> Make(int threads = 1) const {
    const auto& [c, backend] = GetParam();
    std::unique_ptr<Executable> executable =
        Compile(backend, Model(), c.spec, {.max_rows = 4, .threads = threads});
    testing::RandomizeState(3, *executable);
    return executable;
  }
};

TEST_P(UpdateRanges, InAnyCutGiveTheBitsOfOneUpdate) {
  for (const int threads : {1, 2}) {
    const std::unique_ptr<Executable> whole = Make();
    const std::unique_ptr<Executable> parts = Make(threads);
    ASSERT_NE(parts->range_update(), nullptr);
    for (uint64_t step = 0; step < 6; ++step) {
      const double lr = 0.05 / static_cast<double>(step + 1);
      testing::WriteReduction(*whole, Sums(step, *whole));
      testing::WriteReduction(*parts, Sums(step, *parts));
      const absl::StatusOr<StepMetrics> expected = whole->Update(lr);
      ASSERT_TRUE(parts->range_update()->BeginUpdate(lr).ok());
      // In the last step the ranges are shorter than a vector.
      const int count = step < 5 ? static_cast<int>(step) * 7 + 1 : 3000;
      for (const Range& range : RandomCut(step, ParametersOf(*parts), count)) {
        ASSERT_TRUE(parts->range_update()->UpdateRange(range.begin, range.end).ok());
      }
      ASSERT_TRUE(parts->range_update()->EndUpdate().ok());
      const absl::StatusOr<StepMetrics> metrics = parts->FinishUpdate();
      ASSERT_TRUE(expected.ok() && metrics.ok());
      EXPECT_EQ(metrics->loss, expected->loss);
      EXPECT_EQ(metrics->accuracy, expected->accuracy);
      EXPECT_EQ(testing::ReadAllState(*parts), testing::ReadAllState(*whole)) << step;
      EXPECT_EQ(testing::ReadReduction(*parts), Values(parts->reduction().size(), 0.0f));
    }
  }
}

// Runs on backends whose parameters are floats.
class SharedUpdates : public UpdateRanges {};

// Each rank updates some of the ranges and gets the parameters of the others.
TEST_P(SharedUpdates, OfTwoRanksGiveTheParametersOfOneUpdate) {
  const std::unique_ptr<Executable> whole = Make();
  const std::unique_ptr<Executable> ranks[] = {Make(), Make(2)};
  const TestBatch batch = testing::RandomBatch(7, Model(), 4);
  for (uint64_t step = 0; step < 4; ++step) {
    const std::vector<Range> cut = RandomCut(step, ParametersOf(*whole), 9);
    testing::WriteReduction(*whole, Sums(step, *whole));
    ASSERT_TRUE(whole->Update(0.1).ok());
    for (const std::unique_ptr<Executable>& rank : ranks) {
      testing::WriteReduction(*rank, Sums(step, *rank));
      // Copies of the weights in other formats must not outlive the update.
      ASSERT_TRUE(rank->Predict(batch.inputs).ok());
      ASSERT_TRUE(rank->range_update()->BeginUpdate(0.1).ok());
    }
    for (size_t i = 0; i < cut.size(); ++i) {
      Executable& owner = *ranks[i % 2];
      Executable& other = *ranks[1 - i % 2];
      ASSERT_TRUE(owner.range_update()->UpdateRange(cut[i].begin, cut[i].end).ok());
      std::copy(owner.parameters().begin() + cut[i].begin, owner.parameters().begin() + cut[i].end,
                other.parameters().begin() + cut[i].begin);
      // Values that only the owner knew are passed on, since the next step has another cut.
      const std::vector<absl::Span<float>> from = StatesOf(owner), to = StatesOf(other);
      for (size_t state = 0; state < from.size(); ++state) {
        std::copy(from[state].begin() + cut[i].begin, from[state].begin() + cut[i].end,
                  to[state].begin() + cut[i].begin);
      }
    }
    for (const std::unique_ptr<Executable>& rank : ranks) {
      ASSERT_TRUE(rank->range_update()->EndUpdate().ok());
      EXPECT_EQ(testing::ReadReduction(*rank), Values(rank->reduction().size(), 0.0f));
      EXPECT_EQ(testing::ReadAllState(*rank), testing::ReadAllState(*whole)) << step;
      EXPECT_EQ(*rank->Predict(batch.inputs), *whole->Predict(batch.inputs)) << step;
    }
  }
}

TEST_P(UpdateRanges, TellOfAGradientThatIsNotFiniteInOneOfThem) {
  for (const float spoiled :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::unique_ptr<Executable> executable = Make();
    const int64_t count = ParametersOf(*executable);
    Values sums = Sums(1, *executable);
    sums[100] = spoiled;
    for (const bool updates_it : {true, false}) {
      testing::WriteReduction(*executable, sums);
      ASSERT_TRUE(executable->range_update()->BeginUpdate(0.1).ok());
      ASSERT_TRUE(executable->range_update()->UpdateRange(101, count).ok());
      if (updates_it) {
        ASSERT_TRUE(executable->range_update()->UpdateRange(0, 101).ok());
      }
      ASSERT_TRUE(executable->range_update()->EndUpdate().ok());
      EXPECT_EQ(std::isnan(executable->FinishUpdate()->loss), updates_it);
      EXPECT_EQ(testing::ReadReduction(*executable), Values(sums.size(), 0.0f));
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Case, std::string>>& test) {
  return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param);
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateRanges,
                         ::testing::Combine(::testing::ValuesIn(kElementwise),
                                            ::testing::ValuesIn(testing::AllBackends())),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Rules, SharedUpdates,
                         ::testing::Combine(::testing::ValuesIn(kElementwise),
                                            ::testing::ValuesIn(testing::TestedAndReference())),
                         NameOf);

class UpdatesWithNorms : public UpdateRanges {};

TEST_P(UpdatesWithNorms, AreMadeAtOnceAlone) {
  const std::unique_ptr<Executable> executable = Make();
  EXPECT_EQ(executable->range_update(), nullptr);
  testing::WriteReduction(*executable, Sums(1, *executable));
  EXPECT_TRUE(executable->Update(0.1).ok());
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdatesWithNorms,
                         ::testing::Combine(::testing::ValuesIn(kWithNorms),
                                            ::testing::ValuesIn(testing::AllBackends())),
                         NameOf);

class PartialSums : public ::testing::TestWithParam<std::string> {};

TEST_P(PartialSums, OfThreeReplicasAreTheSumsOfTheirGradients) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {}, {.max_rows = 4, .sum_slots = 2});
  testing::RandomizeState(1, *executable);
  const std::unique_ptr<Executable> alone = Compile(GetParam(), model, {}, {.max_rows = 4});
  testing::CopyState(*executable, *alone);
  const auto size = static_cast<int64_t>(executable->reduction().size());
  Values gradients[3];
  for (uint64_t replica = 0; replica < 3; ++replica) {
    const TestBatch batch = testing::RandomBatch(replica, model, 4);
    ASSERT_TRUE(alone->Accumulate(batch.batch(), 0.25, nullptr).ok());
    gradients[replica] = testing::ReadReduction(*alone);
    ASSERT_TRUE(alone->Update(0).ok());
    testing::CopyState(*executable, *alone);
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 0.25, nullptr).ok());
    if (replica < 2) {
      ASSERT_TRUE(executable->sum_slots()->StoreSums(static_cast<int>(replica)).ok());
      EXPECT_EQ(testing::ReadReduction(*executable), Values(gradients[0].size(), 0.0f));
    }
  }
  for (int slot = 0; slot < 2; ++slot) {
    const absl::Span<float> stored = executable->sum_slots()->sums(slot);
    EXPECT_EQ(Values(stored.begin(), stored.end()), gradients[slot]);
  }
  // 0 + (1 + 2), where the last step adds only a part.
  ASSERT_TRUE(executable->sum_slots()->AddSums(1, 0, size).ok());
  ASSERT_TRUE(executable->sum_slots()->AddSums(0, 5, size - 3).ok());
  Values expected = gradients[2];
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(i);
    expected[at] = gradients[1][at] + expected[at];
    if (i >= 5 && i < size - 3) {
      expected[at] = gradients[0][at] + expected[at];
    }
  }
  EXPECT_EQ(testing::ReadReduction(*executable), expected);
}

TEST_P(PartialSums, AreInTheMemoryPlan) {
  int64_t without = 0;
  for (const int slots : {0, 1, 3}) {
    const int64_t before = LiveBufferBytes();
    const std::unique_ptr<Executable> executable =
        Compile(GetParam(), Model(), {.momentum = 0.9}, {.max_rows = 4, .sum_slots = slots});
    const MemoryPlan plan = executable->memory_plan();
    EXPECT_EQ(LiveBufferBytes() - before, plan.buffers());
    if (slots == 0) {
      without = plan.gradients;
    }
    EXPECT_EQ(plan.gradients, without * (slots + 1));
    const absl::StatusOr<CompilePlan> planned =
        (*MakeBackend(GetParam()))
            ->Plan(Model(), {.momentum = 0.9}, {.max_rows = 4, .sum_slots = slots});
    ASSERT_TRUE(planned.ok());
    EXPECT_EQ(planned->memory.buffers(), plan.buffers());
  }
}

TEST_P(PartialSums, AreRefusedInNegativeNumbers) {
  EXPECT_EQ((*MakeBackend(GetParam()))->Compile(Model(), {}, {.sum_slots = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Gradients are at the same offsets, so that a range is the same range of both.
TEST_P(PartialSums, AndParametersLieInOneOrder) {
  const Graph model = Model();
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, {.max_rows = 4});
  testing::RandomizeState(1, *executable);
  const absl::Span<float> parameters = executable->parameters();
  if (GetParam() == "reference_f64") {
    EXPECT_TRUE(parameters.empty());
    return;
  }
  const StepGraph step = BuildTrainingStep(model, {});
  const ReductionLayout layout = LayOutReduction(step);
  ASSERT_EQ(static_cast<int64_t>(parameters.size()), layout.gradient_elements);
  Values expected(parameters.size(), 0.0f);
  for (const ReductionEntry& entry : layout.entries) {
    if (entry.kind == ReductionEntry::Kind::kGradient) {
      const Values values = testing::ReadState(*executable, model.value(entry.target).name);
      std::copy(values.begin(), values.end(), expected.begin() + entry.offset);
    }
  }
  EXPECT_EQ(Values(parameters.begin(), parameters.end()), expected);
}

TEST(SharedMemoryOfAnExecutable, IsWhatOtherProcessesMap) {
  const Graph model = Model();
  const int64_t before = LiveBufferBytes();
  const CompileOptions options = {.max_rows = 4, .sum_slots = 2, .shares_memory = true};
  std::unique_ptr<Executable> executable = Compile("cpu", model, {}, options);
  testing::RandomizeState(1, *executable);
  EXPECT_EQ(LiveBufferBytes() - before, executable->memory_plan().buffers());
  const absl::StatusOr<CompilePlan> plan = (*MakeBackend("cpu"))->Plan(model, {}, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->memory.buffers(), executable->memory_plan().buffers());

  const Executable::SharedLayout layout = executable->shared_layout();
  const absl::StatusOr<std::unique_ptr<SharedMemory>> mapped =
      SharedMemory::Attach(SharedMemory::AddressOf(getpid(), layout.fd), layout.bytes);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto at = [&](int64_t offset, size_t count) {
    EXPECT_EQ(offset % 4096, 0);
    return absl::MakeSpan(reinterpret_cast<float*>((*mapped)->data() + offset), count);
  };
  const size_t size = executable->reduction().size();
  ASSERT_TRUE(executable->Accumulate(testing::RandomBatch(1, model, 4).batch(), 1, nullptr).ok());
  ASSERT_TRUE(executable->sum_slots()->StoreSums(1).ok());
  ASSERT_TRUE(executable->Accumulate(testing::RandomBatch(2, model, 4).batch(), 1, nullptr).ok());
  ASSERT_EQ(layout.slot_offsets.size(), 2u);
  EXPECT_EQ(at(layout.reduction_offset, size), executable->reduction());
  EXPECT_EQ(at(layout.slot_offsets[0], size), executable->sum_slots()->sums(0));
  EXPECT_EQ(at(layout.slot_offsets[1], size), executable->sum_slots()->sums(1));
  EXPECT_NE(executable->sum_slots()->sums(0), executable->sum_slots()->sums(1));
  const absl::Span<float> parameters =
      at(layout.parameters_offset, executable->parameters().size());
  EXPECT_EQ(parameters, executable->parameters());
  // It also works in the other direction: what another process writes is what the next batch sees.
  const StateTensor& first = executable->state().front();
  ASSERT_TRUE(executable->range_update()->BeginUpdate(0.1).ok());
  std::fill(parameters.begin(), parameters.end(), 2.0f);
  ASSERT_TRUE(executable->range_update()->EndUpdate().ok());
  EXPECT_EQ(testing::ReadState(*executable, first.name),
            Values(static_cast<size_t>(ElementCount(first.shape)), 2.0f));

  executable = nullptr;
  EXPECT_EQ(LiveBufferBytes(), before);
  EXPECT_FALSE(
      SharedMemory::Attach(SharedMemory::AddressOf(getpid(), layout.fd), layout.bytes).ok());
}

TEST(SharedMemoryOfAnExecutable, ChangesNoBit) {
  const Graph model = Model();
  testing::NamedValues states[2];
  for (const bool shares : {false, true}) {
    const std::unique_ptr<Executable> executable =
        Compile("cpu", model, {.momentum = 0.9}, {.max_rows = 4, .shares_memory = shares});
    EXPECT_EQ(executable->shared_layout().fd >= 0, shares);
    testing::RandomizeState(1, *executable);
    for (uint64_t step = 0; step < 3; ++step) {
      const TestBatch batch = testing::RandomBatch(step, model, 4);
      ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
      ASSERT_TRUE(executable->Update(0.1).ok());
    }
    states[shares ? 1 : 0] = testing::ReadAllState(*executable);
  }
  EXPECT_EQ(states[0], states[1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, PartialSums, ::testing::ValuesIn(testing::AllBackends()));

}  // namespace
}  // namespace trainyard::engine
