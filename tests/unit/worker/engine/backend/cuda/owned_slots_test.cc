// Tests executables that keep the optimizer's slots only for the ranges that they update.
#include "worker/engine/backend/cuda/owned_slots.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/graph/build_step.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using cuda::OwnedSlots;
using Ranges = std::vector<ElementRange>;

TEST(OwnedSlots, LieAtTheSamePlaceWithinFourElementsAsTheirParameters) {
  const Ranges owned = {{3, 10}, {17, 18}, {40, 64}};
  const OwnedSlots slots(owned, 64);
  EXPECT_FALSE(slots.is_whole());
  EXPECT_EQ(slots.stride() % 4, 0);
  EXPECT_LE(slots.stride(), 7 + 1 + 24 + 4 * 3);
  int64_t end = 0;
  for (size_t i = 0; i < owned.size(); ++i) {
    const OwnedSlots::Part& part = slots.parts()[i];
    EXPECT_EQ(part.begin, owned[i].begin);
    EXPECT_EQ(part.place % 4, part.begin % 4);
    EXPECT_GE(part.place, end);
    end = part.place + part.end - part.begin;
  }
  EXPECT_LE(end, slots.stride());
  EXPECT_EQ(slots.PartOf(45, 50).begin, 40);
}

TEST(OwnedSlots, AreWholeWithoutRanges) {
  const OwnedSlots slots({}, 63);
  EXPECT_TRUE(slots.is_whole());
  EXPECT_EQ(slots.stride(), 63);
  EXPECT_EQ(slots.PartOf(0, 63).place, 0);
}

Graph Model() {
  return *BuildConvnet({.input = {3, 8, 8}, .channels = {5, 7}, .classes = 10});
}

std::unique_ptr<Executable> CompileFor(const OptimizerSpec& optimizer, const Ranges& owned) {
  CompileOptions options = {.max_rows = 4};
  options.owned = owned;
  return *(*MakeCudaBackend({.autotunes = false}))->Compile(Model(), optimizer, options);
}

// Two ranks that update a part of the parameters each, beside an executable that updates all.
class OwnedUpdates : public ::testing::TestWithParam<OptimizerSpec> {
 protected:
  void SetUp() override {
    const int64_t size = LayOutReduction(BuildTrainingStep(Model(), {})).gradient_elements;
    ASSERT_GT(size, 500);
    // The borders lie within tensors, and are odd.
    owned_ = {{{0, 101}, {307, 401}}, {{101, 307}, {401, size}}};
    whole_ = CompileFor(GetParam(), {});
    testing::RandomizeState(3, *whole_);
    for (const Ranges& owned : owned_) {
      ranks_.push_back(CompileFor(GetParam(), owned));
      testing::CopyState(*whole_, *ranks_.back());
    }
  }

  void Step(uint64_t seed) {
    const testing::TestBatch batch = testing::RandomBatch(seed, Model(), 4);
    ASSERT_TRUE(whole_->Accumulate(batch.batch(), 1, nullptr).ok());
    ASSERT_TRUE(whole_->Update(0.1).ok());
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(rank->Accumulate(batch.batch(), 1, nullptr).ok());
      ASSERT_TRUE(rank->range_update()->BeginUpdate(0.1).ok());
      // Parameters change below.
      ASSERT_TRUE(rank->Synchronize().ok());
    }
    for (size_t r = 0; r < 2; ++r) {
      for (const ElementRange& range : owned_[r]) {
        ASSERT_TRUE(ranks_[r]->range_update()->UpdateRange(range.begin, range.end).ok());
        ASSERT_TRUE(ranks_[r]->Synchronize().ok());
        std::copy(ranks_[r]->parameters().begin() + range.begin,
                  ranks_[r]->parameters().begin() + range.end,
                  ranks_[1 - r]->parameters().begin() + range.begin);
      }
    }
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(rank->range_update()->EndUpdate().ok());
      ASSERT_TRUE(rank->FinishUpdate().ok());
    }
  }

  // Completes the states of both ranks: notes what each has, and then gives each what the other
  // has.
  void Complete() {
    std::vector<std::vector<std::vector<float>>> states(2);
    for (const bool gives : {false, true}) {
      for (size_t r = 0; r < 2; ++r) {
        size_t number = 0;
        const auto complete = [&](absl::Span<float> state) -> absl::Status {
          EXPECT_TRUE(ranks_[r]->Synchronize().ok());
          if (!gives) states[r].emplace_back(state.begin(), state.end());
          for (const ElementRange& range : owned_[1 - r]) {
            if (!gives) continue;
            const std::vector<float>& others = states[1 - r][number];
            std::copy(others.begin() + range.begin, others.begin() + range.end,
                      state.begin() + range.begin);
          }
          ++number;
          return absl::OkStatus();
        };
        ASSERT_TRUE(ranks_[r]->range_update()->CompleteStates(complete, /*reads=*/true).ok());
      }
    }
  }

  std::vector<Ranges> owned_;
  std::unique_ptr<Executable> whole_;
  std::vector<std::unique_ptr<Executable>> ranks_;
};

TEST_P(OwnedUpdates, GiveTheBitsOfAnUpdateOfEverything) {
  for (uint64_t step = 1; step <= 3; ++step) Step(step);
  Complete();
  for (const auto& rank : ranks_) {
    EXPECT_EQ(testing::ReadAllState(*rank), testing::ReadAllState(*whole_));
    EXPECT_THAT(testing::ReadReduction(*rank), ::testing::Each(0));
  }
  // The next update finds what was written.
  testing::RandomizeState(4, *whole_);
  for (const auto& rank : ranks_) testing::CopyState(*whole_, *rank);
  Step(4);
  Complete();
  EXPECT_EQ(testing::ReadAllState(*ranks_[1]), testing::ReadAllState(*whole_));
}

TEST_P(OwnedUpdates, KeepNoSlotsForOthers) {
  int64_t all = 0;
  for (const auto& rank : ranks_) all += rank->memory_plan().optimizer;
  // Buffers are rounded up, and averages are kept whole.
  const int64_t averages = GetParam().ema_decay > 0
                               ? static_cast<int64_t>(whole_->parameters().size() * sizeof(float))
                               : 0;
  EXPECT_LE(all, whole_->memory_plan().optimizer + averages + 4096);
}

TEST_P(OwnedUpdates, AreNotReadBeforeTheyAreComplete) {
  Step(1);
  std::vector<std::string> refused;
  for (size_t i = 0; i < ranks_[0]->state().size(); ++i) {
    const StateTensor& tensor = ranks_[0]->state()[i];
    std::vector<float> values(static_cast<size_t>(ElementCount(tensor.shape)));
    const absl::Status status = ranks_[0]->ReadState(i, absl::MakeSpan(values));
    const bool is_divided =
        tensor.kind == StateTensor::Kind::kOptimizerSlot && tensor.name != "step";
    EXPECT_EQ(status.code(),
              is_divided ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk)
        << tensor.name << ": " << status;
  }
}

constexpr OptimizerSpec kMomentum = {.momentum = 0.9, .weight_decay = 1e-3};
constexpr OptimizerSpec kAdamW = {
    .rule = OptimizerSpec::Rule::kAdamW, .weight_decay = 1e-2, .ema_decay = 0.9};
INSTANTIATE_TEST_SUITE_P(Rules, OwnedUpdates, ::testing::Values(kMomentum, kAdamW),
                         [](const ::testing::TestParamInfo<OptimizerSpec>& test) {
                           return std::string(RuleName(test.param.rule));
                         });

TEST(OwnedRanges, ThatDoNotAscendAreRefused) {
  CompileOptions options = {.max_rows = 4};
  options.owned = {{10, 20}, {15, 30}};
  const auto backend = *MakeCudaBackend({.autotunes = false});
  EXPECT_EQ(backend->Compile(Model(), kMomentum, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::engine
