#include "worker/engine/graph/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using ::testing::HasSubstr;

bool Overlap(int64_t a, int64_t a_size, int64_t b, int64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

TEST(PlanArena, NeverOverlapsWhatLivesAtTheSameTime) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lifetimes(40);
    int64_t total = 0;
    for (Lifetime& lifetime : lifetimes) {
      lifetime.bytes = static_cast<int64_t>(random() % 5000) + 1;
      lifetime.first = static_cast<int>(random() % 30);
      lifetime.last = lifetime.first + static_cast<int>(random() % 6);
      total += lifetime.bytes + kArenaAlignment;
    }
    const ArenaLayout layout = PlanArena(lifetimes);
    EXPECT_LT(layout.bytes, total / 2);
    for (size_t a = 0; a < lifetimes.size(); ++a) {
      EXPECT_EQ(layout.offsets[a] % kArenaAlignment, 0);
      EXPECT_LE(layout.offsets[a] + lifetimes[a].bytes, layout.bytes);
      for (size_t b = 0; b < a; ++b) {
        if (lifetimes[a].first <= lifetimes[b].last && lifetimes[b].first <= lifetimes[a].last) {
          EXPECT_FALSE(Overlap(layout.offsets[a], lifetimes[a].bytes, layout.offsets[b],
                               lifetimes[b].bytes));
        }
      }
    }
  }
}

TEST(PlanArena, GivesAChainTheTwoLargestNeighbours) {
  // Each value is read by the call that makes the next.
  const Lifetime chain[] = {{640, 0, 1}, {1280, 1, 2}, {640, 2, 3}, {1280, 3, 4}};
  EXPECT_EQ(PlanArena(chain).bytes, 640 + 1280);
}

TEST(PlanArena, OfNothingIsEmpty) {
  EXPECT_EQ(PlanArena({}).bytes, 0);
}

TEST(ComputeLifetimes, ActivationsLiveUntilBackwardReadsThem) {
  const StepGraph step = BuildTrainingStep(*BuildMlp({.input = {8}, .hidden = {6}}), {});
  const ValueLifetimes values = ComputeLifetimes(step, 3, 4);
  for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
    for (ValueId input : step.graph.nodes[i].inputs) {
      const int lifetime = values.lifetime_of[static_cast<size_t>(input)];
      if (lifetime >= 0) {
        EXPECT_LE(values.lifetimes[static_cast<size_t>(lifetime)].first, static_cast<int>(i));
        EXPECT_GE(values.lifetimes[static_cast<size_t>(lifetime)].last, static_cast<int>(i));
      }
    }
  }
}

class MemoryPlans : public ::testing::TestWithParam<std::string> {};

TEST_P(MemoryPlans, AreExactlyWhatIsHeld) {
  const Graph model =
      *BuildConvnet({.input = {3, 12, 12}, .channels = {5, 12}, .batch_norm = true});
  const int64_t before = LiveBufferBytes();
  const std::unique_ptr<Executable> executable =
      testing::Compile(GetParam(), model, {.momentum = 0.9}, {.max_rows = 6});
  const int64_t planned = executable->memory_plan().buffers();
  EXPECT_EQ(LiveBufferBytes() - before, planned);
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  for (uint64_t step = 0; step < 3; ++step) {
    const testing::TestBatch batch = testing::RandomBatch(step, model, 6);
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    ASSERT_TRUE(executable->Update(0.1).ok());
    ASSERT_TRUE(executable->Evaluate(batch.batch()).ok());
  }
  EXPECT_EQ(LiveBufferBytes() - before, planned);
  EXPECT_EQ(executable->memory_plan().buffers(), planned);
}

TEST_P(MemoryPlans, StillHoldAfterSmallerBatches) {
  const Graph model = *BuildConvnet({.input = {3, 12, 12}, .channels = {5, 12}});
  const int64_t before = LiveBufferBytes();
  const std::unique_ptr<Executable> executable =
      testing::Compile(GetParam(), model, {}, {.max_rows = 6});
  for (int64_t rows = 1; rows <= 6; ++rows) {
    const testing::TestBatch batch = testing::RandomBatch(1, model, rows);
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    ASSERT_TRUE(executable->Evaluate(batch.batch()).ok());
  }
  EXPECT_EQ(LiveBufferBytes() - before, executable->memory_plan().buffers());
}

TEST_P(MemoryPlans, CountEachCategory) {
  const Graph model = *BuildMlp({.input = {64}, .hidden = {32}});
  const std::unique_ptr<Executable> plain = testing::Compile(GetParam(), model, {}, {});
  const std::unique_ptr<Executable> momentum =
      testing::Compile(GetParam(), model, {.momentum = 0.9}, {});
  EXPECT_EQ(plain->memory_plan().optimizer, 0);
  EXPECT_EQ(momentum->memory_plan().optimizer, momentum->memory_plan().parameters);
  EXPECT_GE(plain->memory_plan().parameters, 4 * (64 * 32 + 32 + 32 * 10 + 10));
  EXPECT_GE(plain->memory_plan().gradients, 4 * (64 * 32 + 32 + 32 * 10 + 10));
  EXPECT_GT(plain->memory_plan().activations, 0);
  EXPECT_GE(plain->memory_plan().activations_unshared, plain->memory_plan().activations);
}

TEST_P(MemoryPlans, AreTheSameWithoutTheMemory) {
  const Graph model =
      *BuildConvnet({.input = {3, 12, 12}, .channels = {5, 12}, .batch_norm = true});
  const OptimizerSpec optimizer = {.momentum = 0.9, .clip_norm = 1, .ema_decay = 0.9};
  const CompileOptions options = {.max_rows = 6, .threads = 2};
  const std::unique_ptr<Executable> executable =
      testing::Compile(GetParam(), model, optimizer, options);
  const int64_t before = LiveBufferBytes();
  const auto backend = MakeBackend(GetParam());
  const absl::StatusOr<CompilePlan> plan = (*backend)->Plan(model, optimizer, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LiveBufferBytes(), before);
  EXPECT_EQ(plan->memory.categories(), executable->memory_plan().categories());
  EXPECT_EQ(plan->memory.activations_unshared, executable->memory_plan().activations_unshared);
  EXPECT_EQ(plan->memory.total(), executable->memory_plan().total());
  EXPECT_GE(plan->total_calls(), static_cast<int64_t>(model.nodes.size()));
}

TEST_P(MemoryPlans, AreKnownForBatchesThatNoMachineHolds) {
  const Graph model = *BuildConvnet({.input = {3, 32, 32}, .batch_norm = true});
  const auto backend = MakeBackend(GetParam());
  const absl::StatusOr<CompilePlan> plan = (*backend)->Plan(model, {}, {.max_rows = 16'777'216});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->memory.activations, int64_t{1} << 40);
}

TEST_P(MemoryPlans, HoldForEverySmallerBatch) {
  const Graph models[] = {
      *BuildConvnet({.input = {3, 12, 12}, .channels = {5, 12}, .batch_norm = true}),
      *BuildMlp({.input = {30}, .hidden = {17, 9}}),
      *BuildResnet({.input = {3, 8, 8}, .depth = 20, .stem = Stem::kCifar, .classes = 10})};
  for (const Graph& model : models) {
    const int64_t before = LiveBufferBytes();
    const std::unique_ptr<Executable> executable =
        testing::Compile(GetParam(), model, {}, {.max_rows = 7});
    const int64_t planned = executable->memory_plan().buffers();
    for (int64_t rows = 2; rows <= 7; ++rows) {
      const testing::TestBatch batch = testing::RandomBatch(1, model, rows);
      ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
      ASSERT_TRUE(executable->Evaluate(batch.batch()).ok());
    }
    EXPECT_EQ(LiveBufferBytes() - before, planned);
    EXPECT_EQ(executable->memory_plan().buffers(), planned);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MemoryPlans, ::testing::ValuesIn(testing::AllBackends()));

TEST(MemoryPlan, ThatDoesNotFitIsRefusedWithTheNumbers) {
  MemoryPlan plan;
  plan.parameters = 1 << 20;
  plan.activations = 1 << 20;
  EXPECT_TRUE(CheckFits(plan, 2 << 20, 0).ok());
  const absl::Status status = CheckFits(plan, 1 << 20, 32);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("needs 2.0 MiB"), HasSubstr("has 1.0 MiB"),
                    HasSubstr("a batch of 32 would fit")));
}

}  // namespace
}  // namespace trainyard::engine
