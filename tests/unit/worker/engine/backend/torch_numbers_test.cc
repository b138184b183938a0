// Compares small networks with the numbers of PyTorch in tests/data/torch, which make_numbers.py
// there writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using testing::Values;

nlohmann::json NumbersOf(const std::string& name) {
  const absl::StatusOr<std::string> text =
      ReadFile(trainyard::testing::SourcePath(absl::StrCat("tests/data/torch/", name, ".json")));
  EXPECT_TRUE(text.ok()) << text.status();
  return nlohmann::json::parse(*text);
}

Values Floats(const nlohmann::json& numbers) {
  return numbers.get<Values>();
}

Values Floats(const std::vector<double>& numbers) {
  return Values(numbers.begin(), numbers.end());
}

// A layer of its own between an image and a linear layer.
struct Net {
  std::string name;
  Shape input;
  std::function<ValueId(GraphBuilder&)> layer;
};

Graph BuildNet(const Net& net) {
  GraphBuilder b(net.input);
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(net.layer(b)), 4));
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

class TorchNumbers : public ::testing::TestWithParam<std::tuple<Net, std::string>> {};

TEST_P(TorchNumbers, AreThoseOfOneStep) {
  const auto& [net, backend] = GetParam();
  const nlohmann::json expected = NumbersOf(net.name);
  const Graph model = BuildNet(net);
  const std::unique_ptr<Executable> executable =
      testing::Compile(backend, model, {}, {.max_rows = 3, .threads = 2, .inspect = true});
  for (const auto& [name, values] : expected["state"].items()) {
    testing::WriteState(*executable, name, Floats(values));
  }
  const Values inputs = Floats(expected["input"]);
  const auto labels = expected["labels"].get<std::vector<int32_t>>();
  ASSERT_TRUE(executable->Accumulate({inputs, labels}, 1, nullptr).ok());
  const absl::StatusOr<Inspection> seen = executable->Inspect();
  ASSERT_TRUE(seen.ok()) << seen.status();
  constexpr double kTolerance = 1e-5;
  EXPECT_NEAR(seen->loss, expected["loss"].get<double>(), kTolerance);
  testing::ExpectNear(Floats(seen->logits), Floats(expected["logits"]), kTolerance, "logits");
  testing::ExpectNear(Floats(seen->input_gradient), Floats(expected["input_gradient"]), kTolerance,
                      "input gradient");
  testing::NamedValues gradients;
  for (const auto& [name, values] : expected["gradients"].items()) {
    gradients[name] = Floats(values);
  }
  testing::ExpectNear(testing::Gradients(model, *executable), gradients, kTolerance);
}

const Net kNets[] = {
    {"group_norm",
     {6, 4, 5},
     [](GraphBuilder& b) {
       return b.Layer("norm", b.input(), layers::GroupNorm{.groups = 3, .eps = 1e-3});
     }},
    {"upsample",
     {2, 3, 2},
     [](GraphBuilder& b) {
       const ValueId x = b.Conv2d("conv", b.input(), {.channels = 3, .padding = 1});
       return b.Layer("", x, layers::Upsample{.scale = 3});
     }},
};

INSTANTIATE_TEST_SUITE_P(Backends, TorchNumbers,
                         ::testing::Combine(::testing::ValuesIn(kNets),
                                            ::testing::ValuesIn(testing::AllBackends())),
                         [](const ::testing::TestParamInfo<TorchNumbers::ParamType>& test) {
                           return absl::StrCat(std::get<0>(test.param).name, "_",
                                               std::get<1>(test.param));
                         });

class TorchAdam : public ::testing::TestWithParam<std::string> {};

TEST_P(TorchAdam, MakesTheSameUpdates) {
  const nlohmann::json expected = NumbersOf("adam");
  GraphBuilder b({4});
  b.SoftmaxCrossEntropy(b.Linear("fc", b.input(), 2, /*bias=*/false));
  const Graph model = *std::move(b).Build();
  const std::unique_ptr<Executable> executable =
      testing::Compile(GetParam(), model,
                       {.rule = OptimizerSpec::Rule::kAdam,
                        .weight_decay = 0.1,
                        .beta1 = 0.8,
                        .beta2 = 0.95,
                        .eps = 1e-4},
                       {.max_rows = 1});
  testing::WriteState(*executable, "fc.weight", Floats(expected["start"]));
  for (const auto& step : expected["steps"]) {
    // The gradients of the only parameter come first in the arena.
    Values sums(executable->reduction().size(), 0.0f);
    const Values gradient = Floats(step["gradient"]);
    std::copy(gradient.begin(), gradient.end(), sums.begin());
    testing::WriteReduction(*executable, sums);
    ASSERT_TRUE(executable->Update(0.05).ok());
    testing::ExpectNear(testing::ReadState(*executable, "fc.weight"), Floats(step["weight"]), 2e-6,
                        "fc.weight");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TorchAdam, ::testing::ValuesIn(testing::AllBackends()));

}  // namespace
}  // namespace trainyard::engine
