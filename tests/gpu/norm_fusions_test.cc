// Compares steps in which convolutions take over work of the batch norms around them with the
// reference, and with the same steps without that. All fusions are taken that cuDNN has plans for,
// whatever they cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/worker/engine/bf16_testing.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"
#include "worker/engine/shared_backend.h"

namespace trainyard::engine {
namespace {

using testing::NamedValues;

// Convolutions with strides, of channels that are padded, some with one reader and one with two,
// and with and without a norm behind them.
Graph Strided() {
  GraphBuilder b({3, 13, 9});
  ValueId x = b.Conv2d("conv1", b.input(), {.channels = 12, .padding = 1, .bias = false});
  x = b.Relu(b.BatchNorm("bn1", x));
  x = b.Conv2d("conv2", x, {.channels = 20, .stride = 2, .padding = 1, .bias = false});
  x = b.Relu(b.BatchNorm("bn2", x));
  const ValueId wide = b.Conv2d("conv3", x, {.channels = 9, .padding = 1, .bias = false});
  const ValueId narrow = b.Conv2d("conv4", x, {.channels = 9, .kernel = 1, .bias = false});
  x = b.Relu(b.BatchNorm("bn3", b.Add(wide, narrow)));
  x = b.Conv2d("conv5", x, {.channels = 8, .kernel = 1, .bias = false});
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.GlobalAvgPool(x)), 5));
  return *std::move(b).Build();
}

Graph SmallResnet() {
  return *BuildResnet({.input = {3, 12, 12}, .depth = 20, .stem = Stem::kCifar, .classes = 10});
}

std::vector<Graph> Nets() {
  std::vector<Graph> nets = {Strided(), SmallResnet(), testing::Residuals(8),
                             testing::Inceptions({16, 24, 16, 20})};
  nets.push_back(*BuildWideResnet({.input = {3, 8, 8}, .depth = 10, .width = 1}));
  return nets;
}

std::unique_ptr<Backend> BackendWith(Fusions fusions) {
  return *MakeCudaBackend({.autotunes = false, .fusions = fusions});
}

// Returns the norm of a - b as a share of that of b, or of the whole state's if that is larger.
double Distance(const testing::Values& a, const testing::Values& b) {
  double difference = 0, whole = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference = std::hypot(difference, static_cast<double>(a[i] - b[i]));
    whole = std::hypot(whole, static_cast<double>(b[i]));
  }
  return difference / std::max(whole, 0.1);
}

class NormFusions : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    before_ = testing::TestedBackend();
    RegisterBackend("cuda with all fusions",
                    ShareBackend([]() -> absl::StatusOr<std::unique_ptr<Backend>> {
                      return BackendWith(Fusions::kAlways);
                    }));
    testing::SetTestedBackend("cuda with all fusions");
  }
  void TearDown() override { testing::SetTestedBackend(before_); }

 private:
  std::string before_;
};

TEST_P(NormFusions, AgreeWithTheReference) {
  for (const Graph& model : Nets()) {
    for (const bool recomputes : {false, true}) {
      SCOPED_TRACE(recomputes);
      testing::CompareReduced(model, 5, {.recompute_norms = recomputes}, GetParam());
    }
  }
}

// Sums add up in another order, and the coefficients of a norm are rounded, so a rectifier may now
// and then decide otherwise.
TEST_P(NormFusions, KeepTheNumbers) {
  for (const Graph& model : Nets()) {
    const testing::TestBatch batch = testing::RandomBatch(3, model, 6);
    NamedValues state[2];
    for (const Fusions fusions : {Fusions::kNever, Fusions::kAlways}) {
      const std::unique_ptr<Backend> backend = BackendWith(fusions);
      const auto executable = *backend->Compile(
          model, {.momentum = 0.9},
          {.max_rows = 6, .precision = GetParam(), .passes = {.recompute_norms = false}});
      testing::RandomizeState(1, *executable);
      // The second batch is added to the first, and the last step is launched as a graph.
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(executable->Accumulate(batch.batch(), 0.5, nullptr).ok());
        ASSERT_TRUE(executable->Accumulate(batch.Rows(0, 4).batch(), 0.5, nullptr).ok());
        ASSERT_TRUE(executable->Update(1e-4).ok());
      }
      state[fusions == Fusions::kAlways ? 1 : 0] = testing::ReadAllState(*executable);
    }
    const double tolerance = GetParam() == Precision::kF16 ? 0.1 : 0.2;
    for (const auto& [name, values] : state[1]) {
      EXPECT_LT(Distance(values, state[0].at(name)), tolerance) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, NormFusions,
                         ::testing::Values(Precision::kF16, Precision::kBf16),
                         [](const auto& of) { return std::string(PrecisionName(of.param)); });

// Between the two convolutions of each of the nine blocks nothing is written, and a gradient is
// read once less.
TEST(FusedNorms, AreThoseWithinTheBlocksOfAResnetInF16) {
  const CompileOptions options = {
      .max_rows = 256, .precision = Precision::kF16, .passes = {.recompute_norms = false}};
  std::map<std::string, int64_t> kernels[2];
  double bytes[2] = {};
  for (const Fusions fusions : {Fusions::kNever, Fusions::kAlways}) {
    const size_t i = fusions == Fusions::kAlways ? 1 : 0;
    const CompilePlan plan = *BackendWith(fusions)->Plan(SmallResnet(), {}, options);
    for (const CallWork& call : plan.work) {
      kernels[i][call.op] += call.kernels;
      bytes[i] += call.bytes + call.more_bytes;
    }
  }
  EXPECT_EQ(kernels[1]["batch_norm"], kernels[0]["batch_norm"] - 9);
  EXPECT_EQ(kernels[1]["batch_norm_gradient"], kernels[0]["batch_norm_gradient"] - 9);
  EXPECT_EQ(kernels[1]["conv2d_input_gradient"], kernels[0]["conv2d_input_gradient"] + 9);
  EXPECT_LT(bytes[1], 0.9 * bytes[0]);
}

}  // namespace
}  // namespace trainyard::engine
