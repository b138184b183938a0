// Compares every model with the reference in f64: one step, an update, predictions. Images and
// batches are small. A rectifier may decide differently over rounded values, so the bounds are
// those of bf16_testing.cc. In the deepest nets bf16 does that to a third of what is left of so few
// values. They are judged in f16, which rounds eight times finer, by the same kernels.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/engine/bf16_testing.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

struct Case {
  const char* name;
  absl::StatusOr<Graph> (*build)();
  int64_t rows;
  std::vector<Precision> precisions = {Precision::kF32, Precision::kBf16, Precision::kF16};
};

const Case kCases[] = {
    {"mlp",
     [] {
       return BuildMlp({.input = {1, 6, 5}, .hidden = {20, 12}, .classes = 7});
     },
     3},
    {"convnet",
     [] {
       return BuildConvnet({.input = {3, 14, 14}, .channels = {12, 16}, .classes = 7});
     },
     3},
    {"alexnet",
     [] {
       return BuildAlexnet({.input = {3, 67, 67}, .classes = 5, .dropout = 0});
     },
     2,
     {Precision::kBf16}},
    {"vgg11_batch_norm",
     [] {
       return BuildVgg(
           {.input = {3, 32, 32}, .depth = 11, .batch_norm = true, .classes = 5, .dropout = 0});
     },
     4,
     {Precision::kF16}},
    {"googlenet_cifar",
     [] {
       return BuildGooglenet(
           {.input = {3, 8, 8}, .stem = Stem::kCifar, .classes = 5, .dropout = 0});
     },
     12,
     {Precision::kF16}},
    {"resnet20",
     [] {
       return BuildResnet({.input = {3, 12, 12}, .depth = 20, .stem = Stem::kCifar, .classes = 5});
     },
     4},
    {"resnet18",
     [] {
       return BuildResnet({.input = {3, 40, 40}, .depth = 18, .classes = 5});
     },
     3,
     {Precision::kF32, Precision::kF16}},
    {"wide_resnet10",
     [] {
       return BuildWideResnet({.input = {3, 12, 12}, .depth = 10, .width = 2, .classes = 5});
     },
     4},
    {"gpt2",
     [] {
       return BuildGpt2(
           {.layers = 2, .heads = 2, .width = 16, .context = 12, .vocabulary = 29, .dropout = 0});
     },
     3},
};

// gtest would print its bytes, including addresses, into the names of the tests.
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// The tests of one model in one precision.
std::vector<std::pair<Case, Precision>> Cases() {
  std::vector<std::pair<Case, Precision>> cases;
  for (const Case& c : kCases) {
    for (const Precision precision : c.precisions) cases.emplace_back(c, precision);
  }
  return cases;
}

class CudaModels : public ::testing::TestWithParam<std::pair<Case, Precision>> {};

TEST_P(CudaModels, TrainAsTheReferenceDoes) {
  const auto& [c, precision] = GetParam();
  const absl::StatusOr<Graph> model = c.build();
  ASSERT_TRUE(model.ok()) << model.status();
  testing::CompareReduced(*model, c.rows, {}, precision);
}

INSTANTIATE_TEST_SUITE_P(Zoo, CudaModels, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<CudaModels::ParamType>& test) {
                           return std::string(test.param.first.name) + "_" +
                                  std::string(PrecisionName(test.param.second));
                         });

}  // namespace
}  // namespace trainyard::engine
