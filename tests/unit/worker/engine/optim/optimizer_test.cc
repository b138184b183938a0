// Tests the update rules of every backend against results written out by hand for a few steps.
#include "worker/engine/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"

namespace trainyard::engine {
namespace {

using testing::Values;

Graph OneLinear() {
  GraphBuilder builder({3});
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.input(), 7));
  return *std::move(builder).Build();
}

class OptimizerRules : public ::testing::TestWithParam<const char*> {};

TEST_P(OptimizerRules, AreThoseOfTorchSgd) {
  const std::vector<OptimizerSpec> specs = {
      {},
      {.weight_decay = 0.01},
      {.momentum = 0.9},
      {.momentum = 0.9, .weight_decay = 0.01},
      {.momentum = 0.8, .nesterov = true, .weight_decay = 0.02},
  };
  for (const OptimizerSpec& spec : specs) {
    const Graph model = OneLinear();
    const std::unique_ptr<Executable> executable =
        testing::Compile(GetParam(), model, spec, {.max_rows = 2});
    testing::RandomizeState(3, *executable);
    const Values start = testing::ReadState(*executable, "fc.weight");
    std::vector<double> w(start.begin(), start.end());
    std::vector<double> m(w.size(), 0.0);
    for (int step = 0; step < 3; ++step) {
      const double lr = 0.1 / (step + 1);
      ASSERT_TRUE(
          executable
              ->Accumulate(testing::RandomBatch(static_cast<uint64_t>(step), model, 2).batch(), 1,
                           nullptr)
              .ok());
      const Values gradient = testing::Gradients(model, *executable)["fc.weight"];
      for (size_t i = 0; i < w.size(); ++i) {
        const double g = gradient[i] + spec.weight_decay * w[i];
        m[i] = step == 0 ? g : spec.momentum * m[i] + g;
        w[i] -= lr * (spec.nesterov ? g + spec.momentum * m[i] : m[i]);
      }
      ASSERT_TRUE(executable->Update(lr).ok());
    }
    testing::ExpectNear(testing::ReadState(*executable, "fc.weight"), Values(w.begin(), w.end()),
                        1e-6, "fc.weight");
    if (spec.momentum > 0) {
      testing::ExpectNear(testing::ReadState(*executable, "momentum.fc.weight"),
                          Values(m.begin(), m.end()), 1e-6, "momentum");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OptimizerRules,
                         ::testing::Values("reference", "reference_f64", "cpu"));

TEST(Optimizer, RefusesValuesOutsideTheirRanges) {
  EXPECT_TRUE(ValidateOptimizer({.momentum = 0.9, .nesterov = true, .weight_decay = 1e-4}).ok());
  for (const OptimizerSpec& spec :
       {OptimizerSpec{.momentum = 1}, OptimizerSpec{.momentum = -0.1},
        OptimizerSpec{.nesterov = true}, OptimizerSpec{.weight_decay = -1}}) {
    const absl::Status status = ValidateOptimizer(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("expected"));
  }
}

TEST(Optimizer, RefusesValuesOfTheOtherRulesByTheirNames) {
  using Rule = OptimizerSpec::Rule;
  const std::pair<OptimizerSpec, const char*> cases[] = {
      {{.rule = Rule::kAdamW, .beta1 = 1}, "adamw: beta 1;"},
      {{.rule = Rule::kLamb, .beta2 = -0.5}, "lamb: beta -0.5;"},
      {{.rule = Rule::kAdamW, .eps = 0}, "adamw: eps 0;"},
      {{.rule = Rule::kLars, .momentum = 1}, "lars: momentum 1;"},
      {{.rule = Rule::kLars, .nesterov = true}, "lars: nesterov"},
      {{.rule = Rule::kLars, .trust_coefficient = 0}, "lars: trust_coefficient 0;"},
      {{.rule = Rule::kLars, .eps = -1}, "lars: eps -1;"},
      {{.clip_norm = -1}, "sgd: clip_norm -1;"},
      {{.ema_decay = 1}, "sgd: ema_decay 1;"},
      {{.rule = Rule::kLamb, .weight_decay = std::nan("")}, "lamb: weight_decay nan;"},
  };
  for (const auto& [spec, expected] : cases) {
    const absl::Status status = ValidateOptimizer(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(expected));
  }
  EXPECT_TRUE(ValidateOptimizer({.rule = Rule::kAdamW}).ok());
  EXPECT_TRUE(ValidateOptimizer({.rule = Rule::kLars, .eps = 0}).ok());
}

TEST(Optimizer, OfACompiledStepIsValidated) {
  for (const char* name : {"reference", "cpu"}) {
    EXPECT_EQ((*MakeBackend(name))->Compile(OneLinear(), {.momentum = 2}, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace trainyard::engine
