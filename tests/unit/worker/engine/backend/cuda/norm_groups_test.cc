// Tests how steps with several groups of rows (Batch::groups) are launched and recorded. What they
// compute is tested on every backend (batch_norm_groups_test.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using testing::TestBatch;
using testing::Values;
using Groups = std::vector<int64_t>;

constexpr int64_t kRows = 8;

class NormGroups : public ::testing::Test {
 protected:
  ~NormGroups() override { cuda_on_cpu::SetSeed(1); }

  std::unique_ptr<Executable> Compile(const Graph& model, int64_t max_groups = 4) {
    auto backend = MakeCudaBackend({.autotunes = false});
    EXPECT_TRUE(backend.ok()) << backend.status();
    auto executable = (*backend)->Compile(model, {.momentum = 0.9},
                                          {.max_rows = kRows, .max_groups = max_groups});
    EXPECT_TRUE(executable.ok()) << executable.status();
    testing::RandomizeState(5, **executable);
    return *std::move(executable);
  }

  // Makes step `number` on the same rows in any division.
  static void Step(Executable& executable, const Graph& model, uint64_t number,
                   const Groups& groups) {
    const TestBatch rows = testing::RandomBatch(number, model, kRows);
    Batch batch = rows.batch();
    batch.groups = groups;
    ASSERT_TRUE(executable.StartStep(batch, 0.01).ok());
    ASSERT_TRUE(executable.FinishUpdate().ok());
  }

  // Planes of two sizes: groups that take one launch for each norm, and groups that take two.
  const Graph small_ =
      *BuildConvnet({.input = {2, 9, 9}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
  const Graph large_ =
      *BuildConvnet({.input = {1, 52, 52}, .channels = {9, 4}, .classes = 5, .batch_norm = true});
};

// Groups may be so small that a norm takes one launch where all rows together take two.
TEST_F(NormGroups, TakeNoMoreLaunchesThanOne) {
  for (const Graph* model : {&small_, &large_}) {
    const std::unique_ptr<Executable> executable = Compile(*model);
    std::vector<int64_t> kernels;
    uint64_t step = 0;
    for (const Groups& groups : {Groups{}, {4, 4}, {3, 3, 2}, {2, 1, 4, 1}}) {
      // The first step with a number of groups packs weights, and the second records.
      for (int i = 0; i < 3; ++i) Step(*executable, *model, ++step, groups);
      const int64_t before = cuda_on_cpu::KernelsLaunched();
      Step(*executable, *model, ++step, groups);
      kernels.push_back(cuda_on_cpu::KernelsLaunched() - before);
    }
    EXPECT_GT(kernels[0], 10);
    EXPECT_THAT(kernels, ::testing::Each(::testing::Le(kernels[0])));
    if (model == &small_) {
      EXPECT_THAT(kernels, ::testing::Each(kernels[0]));
    }
  }
}

// The third step of three groups is a graph, and the fourth launches it for another division.
TEST_F(NormGroups, ARecordingServesEveryDivision) {
  const std::vector<Groups> steps = {{3, 3, 2}, {3, 3, 2}, {3, 3, 2}, {1, 2, 5}, {4, 4}, {2, 4, 2}};
  for (const Graph* model : {&small_, &large_}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      cuda_on_cpu::SetSeed(seed);
      const std::unique_ptr<Executable> recorded = Compile(*model);
      for (size_t i = 0; i < steps.size(); ++i) {
        SCOPED_TRACE(i);
        // An executable of its own runs the step call by call.
        const std::unique_ptr<Executable> fresh = Compile(*model);
        testing::CopyState(*recorded, *fresh);
        Step(*recorded, *model, i, steps[i]);
        Step(*fresh, *model, i, steps[i]);
        EXPECT_EQ(testing::ReadAllState(*recorded), testing::ReadAllState(*fresh));
      }
    }
  }
}

// Other models take batches of any division, since nothing in them looks at groups.
TEST_F(NormGroups, OfAModelWithoutNormsNeedNoRoom) {
  const Graph model = *BuildMlp({.input = {3}, .hidden = {4}, .classes = 2});
  const std::unique_ptr<Executable> divided = Compile(model, /*max_groups=*/1);
  const std::unique_ptr<Executable> whole = Compile(model, /*max_groups=*/1);
  Step(*divided, model, 1, Groups(kRows, 1));
  Step(*whole, model, 1, {});
  EXPECT_EQ(testing::ReadAllState(*divided), testing::ReadAllState(*whole));
}

}  // namespace
}  // namespace trainyard::engine
