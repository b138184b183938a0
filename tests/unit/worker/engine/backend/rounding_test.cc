// Tests how far gradients in floats are from those in doubles. Minimal filtering rounds more often
// than plain sums do, and may be only so much further away.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using testing::NamedValues;

constexpr int64_t kRows = 8;

// Returns a network without rectifiers and maxima. A value near one of their decisions may end on
// either side of it, and so add a step to the distance that says nothing about rounding. The second
// convolution has as many channels and tiles as minimal filtering needs.
Graph SmoothNet() {
  GraphBuilder b({3, 16, 16});
  ValueId x = b.Tanh(b.Conv2d("conv1", b.input(), {.channels = 16, .kernel = 3, .padding = 1}));
  x = b.Tanh(b.Conv2d("conv2", x, {.channels = 32, .kernel = 3, .padding = 1}));
  x = b.AvgPool(x, {.kernel = 4, .stride = 4});
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(x), 7));
  return *std::move(b).Build();
}

// Returns the squared distance between gradients, relative to their length. `from` is the beginning
// of the names that count.
double Distance(const NamedValues& found, const NamedValues& exact, const std::string& from) {
  double distance = 0;
  double length = 0;
  for (const auto& [name, values] : exact) {
    if (name.rfind(from, 0) != 0) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      distance += std::pow(found.at(name)[i] - values[i], 2);
      length += std::pow(values[i], 2);
    }
  }
  return distance / length;
}

TEST(Rounding, GradientsAreAboutAsExactAsThoseOfPlainSumsInFloats) {
  // For conv2, which AVX-512 filters minimally, the factor is 1.15. The points 1 and 2 in the place
  // of kNear and kFar make it 2.2. With AVX2, where oneDNN sums directly, it is 1.55. For conv1 it
  // is 1.15 in all three cases.
  constexpr double kFactor = 1.8;
  const Graph model = SmoothNet();
  const std::string backends[] = {"reference_f64", "reference", "cpu"};
  for (const std::string layer : {"conv1", "conv2"}) {
    double plain = 0;
    double tested = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      NamedValues gradients[3];
      for (size_t i = 0; i < 3; ++i) {
        const auto executable = testing::Compile(backends[i], model, {}, {.max_rows = kRows});
        testing::RandomizeState(seed, *executable);
        const testing::TestBatch batch = testing::RandomBatch(seed, model, kRows);
        ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
        gradients[i] = testing::Gradients(model, *executable);
      }
      plain += Distance(gradients[1], gradients[0], layer);
      tested += Distance(gradients[2], gradients[0], layer);
    }
    EXPECT_LE(std::sqrt(tested), kFactor * std::sqrt(plain)) << layer;
  }
}

}  // namespace
}  // namespace trainyard::engine
