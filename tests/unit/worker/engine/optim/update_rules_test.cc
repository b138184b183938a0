// Compares every update rule of every backend, over many steps, with the papers' formulas written
// out in double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {
namespace {

using Rule = OptimizerSpec::Rule;
using testing::NamedValues;
using testing::Values;
using Doubles = std::vector<double>;

constexpr int kSteps = 25;

// Matrices (one larger than a block of the cpu backend), biases, and a norm.
Graph Model() {
  GraphBuilder b({2, 6, 6});
  ValueId x = b.Conv2d("conv", b.input(), {.channels = 3, .kernel = 3});
  x = b.Relu(b.BatchNorm("bn", x));
  x = b.Tanh(b.Linear("fc1", b.Flatten(x), 120));
  b.SoftmaxCrossEntropy(b.Linear("fc2", x, 4));
  return *std::move(b).Build();
}

double Norm(const Doubles& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

// Runs the optimizer of one parameter.
struct Expected {
  Doubles w, m, v, average;
  bool is_bias_or_norm = false;

  void Update(const OptimizerSpec& s, double lr, int t, Doubles g) {
    const bool is_excluded = is_bias_or_norm && !s.decay_bias_and_norm;
    const double decay = is_excluded ? 0 : s.weight_decay;
    Doubles u(w.size());
    double ratio = 1;
    switch (s.rule) {
      case Rule::kSgd:
        for (size_t i = 0; i < w.size(); ++i) {
          g[i] += decay * w[i];
          m[i] = t == 1 ? g[i] : s.momentum * m[i] + g[i];
          w[i] -= lr * (s.nesterov ? g[i] + s.momentum * m[i] : m[i]);
        }
        break;
      case Rule::kLars:
        if (!is_excluded && Norm(w) > 0 && Norm(g) > 0) {
          ratio = s.trust_coefficient * Norm(w) / (Norm(g) + decay * Norm(w) + s.eps);
        }
        for (size_t i = 0; i < w.size(); ++i) {
          const double step = lr * ratio * (g[i] + decay * w[i]);
          m[i] = s.momentum * m[i] + step;
          w[i] -= s.nesterov ? s.momentum * m[i] + step : m[i];
        }
        break;
      case Rule::kAdam:
        for (size_t i = 0; i < w.size(); ++i) {
          g[i] += decay * w[i];
          m[i] = s.beta1 * m[i] + (1 - s.beta1) * g[i];
          v[i] = s.beta2 * v[i] + (1 - s.beta2) * g[i] * g[i];
          w[i] -= lr * m[i] / (1 - std::pow(s.beta1, t)) /
                  (std::sqrt(v[i] / (1 - std::pow(s.beta2, t))) + s.eps);
        }
        break;
      case Rule::kAdamW:
      case Rule::kLamb:
        for (size_t i = 0; i < w.size(); ++i) {
          m[i] = s.beta1 * m[i] + (1 - s.beta1) * g[i];
          v[i] = s.beta2 * v[i] + (1 - s.beta2) * g[i] * g[i];
          u[i] = m[i] / (1 - std::pow(s.beta1, t)) /
                     (std::sqrt(v[i] / (1 - std::pow(s.beta2, t))) + s.eps) +
                 decay * w[i];
        }
        if (s.rule == Rule::kLamb && !is_excluded && Norm(w) > 0 && Norm(u) > 0) {
          ratio = Norm(w) / Norm(u);
        }
        for (size_t i = 0; i < w.size(); ++i) {
          w[i] -= lr * ratio * u[i];
        }
        break;
    }
    const double d = t == 1 ? 0 : std::min(s.ema_decay, (1.0 + t) / (10.0 + t));
    for (size_t i = 0; i < w.size(); ++i) {
      average[i] = d * average[i] + (1 - d) * w[i];
    }
  }
};

void ClipTo(double limit, std::map<std::string, Doubles>& gradients) {
  Doubles norms;
  for (const auto& [name, gradient] : gradients) {
    norms.push_back(Norm(gradient));
  }
  const double scale = std::min(1.0, limit / (Norm(norms) + 1e-6));
  for (auto& [name, gradient] : gradients) {
    for (double& g : gradient) {
      g *= scale;
    }
  }
}

Values Floats(const Doubles& values) {
  return Values(values.begin(), values.end());
}

struct Case {
  const char* name;
  OptimizerSpec spec;
  double lr;
};

const Case kCases[] = {
    {"sgd", {}, 0.1},
    {"sgd_nesterov", {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}, 0.05},
    {"sgd_groups", {.momentum = 0.9, .weight_decay = 0.1, .decay_bias_and_norm = false}, 0.05},
    {"sgd_clipped", {.momentum = 0.9, .clip_norm = 0.3}, 0.1},
    {"sgd_average", {.ema_decay = 0.6}, 0.1},
    {"adamw", {.rule = Rule::kAdamW, .weight_decay = 0.05}, 0.01},
    {"adamw_all",
     {.rule = Rule::kAdamW,
      .weight_decay = 0.1,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .eps = 1e-4,
      .decay_bias_and_norm = false,
      .clip_norm = 0.2,
      .ema_decay = 0.9},
     0.02},
    {"adam", {.rule = Rule::kAdam, .weight_decay = 0.05}, 0.01},
    {"adam_all",
     {.rule = Rule::kAdam,
      .weight_decay = 0.1,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .eps = 1e-4,
      .decay_bias_and_norm = false,
      .clip_norm = 0.2,
      .ema_decay = 0.9},
     0.02},
    {"lars", {.rule = Rule::kLars, .weight_decay = 0.01, .eps = 0, .trust_coefficient = 0.02}, 1},
    {"lars_momentum",
     {.rule = Rule::kLars,
      .momentum = 0.9,
      .weight_decay = 0.01,
      .eps = 1e-6,
      .trust_coefficient = 0.01,
      .decay_bias_and_norm = false,
      .clip_norm = 0.5},
     0.5},
    {"lars_nesterov",
     {.rule = Rule::kLars,
      .momentum = 0.8,
      .nesterov = true,
      .eps = 0,
      .trust_coefficient = 0.01,
      .ema_decay = 0.5},
     0.5},
    {"lamb", {.rule = Rule::kLamb, .weight_decay = 0.01, .eps = 1e-6}, 0.02},
    {"lamb_all",
     {.rule = Rule::kLamb,
      .weight_decay = 0.1,
      .beta1 = 0.85,
      .beta2 = 0.99,
      .eps = 1e-6,
      .decay_bias_and_norm = false,
      .clip_norm = 0.4,
      .ema_decay = 0.8},
     0.02},
};

class UpdateRules : public ::testing::TestWithParam<std::tuple<Case, std::string>> {};

TEST_P(UpdateRules, AreTheFormulasOverManySteps) {
  const auto& [c, backend] = GetParam();
  const OptimizerSpec& spec = c.spec;
  const Graph model = Model();
  const std::unique_ptr<Executable> executable =
      testing::Compile(backend, model, spec, {.max_rows = 4});
  testing::RandomizeState(3, *executable);
  // A bias of zeros has no norm: the ratio is 1 at its first step.
  testing::WriteState(*executable, "fc2.bias", Values(4, 0.0f));
  std::map<std::string, Expected> expected;
  for (const StateTensor& tensor : executable->state()) {
    if (tensor.kind == StateTensor::Kind::kParameter) {
      const Values start = testing::ReadState(*executable, tensor.name);
      Expected& e = expected[tensor.name];
      e.w.assign(start.begin(), start.end());
      e.m = e.v = e.average = Doubles(start.size(), 0.0);
      e.is_bias_or_norm = tensor.shape.size() == 1;
    }
  }
  for (int t = 1; t <= kSteps; ++t) {
    const double lr = c.lr / (1 + 0.1 * t);
    const auto batch = testing::RandomBatch(static_cast<uint64_t>(t), model, 4);
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    std::map<std::string, Doubles> gradients;
    for (const auto& [name, gradient] : testing::Gradients(model, *executable)) {
      gradients[name] = Doubles(gradient.begin(), gradient.end());
    }
    if (spec.clip_norm > 0) {
      ClipTo(spec.clip_norm, gradients);
    }
    for (auto& [name, e] : expected) {
      e.Update(spec, lr, t, gradients[name]);
    }
    ASSERT_TRUE(executable->Update(lr).ok());
    for (const float sum : testing::ReadReduction(*executable)) {
      ASSERT_EQ(sum, 0);
    }
  }
  // In double precision, only the rounding of ReadState remains.
  const double tolerance = backend == "reference_f64" ? 2e-7 : 1e-5;
  const std::vector<std::string> slots = SlotNames(spec);
  for (const auto& [name, e] : expected) {
    testing::ExpectNear(testing::ReadState(*executable, name), Floats(e.w), tolerance, name);
    for (size_t i = 0; i < slots.size(); ++i) {
      testing::ExpectNear(testing::ReadState(*executable, slots[i] + "." + name),
                          Floats(i == 0 ? e.m : e.v), tolerance, slots[i] + "." + name);
    }
    if (spec.ema_decay > 0) {
      testing::ExpectNear(testing::ReadState(*executable, "ema." + name), Floats(e.average),
                          tolerance, "ema." + name);
    }
  }
  if (CountsSteps(spec)) {
    EXPECT_EQ(testing::ReadState(*executable, "step"), Values{kSteps});
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, UpdateRules,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AllBackends())),
                         [](const ::testing::TestParamInfo<UpdateRules::ParamType>& test) {
                           return absl::StrCat(std::get<0>(test.param).name, "_",
                                               std::get<1>(test.param));
                         });

class Optimizers : public ::testing::TestWithParam<Case> {};

// The two executables act like ranks of different hosts: they get equal sums, but have different
// numbers of threads.
TEST_P(Optimizers, GiveTheSameBitsWithAnyNumberOfThreads) {
  const Graph model = Model();
  NamedValues results[2];
  for (const int threads : {1, 2}) {
    const std::unique_ptr<Executable> executable = testing::Compile(
        testing::TestedBackend(), model, GetParam().spec, {.max_rows = 4, .threads = threads});
    testing::RandomizeState(3, *executable);
    for (uint64_t step = 0; step < 5; ++step) {
      const auto size = static_cast<int64_t>(executable->reduction().size());
      testing::WriteReduction(*executable, testing::RandomValues(step, size));
      ASSERT_TRUE(executable->Update(GetParam().lr).ok());
    }
    results[threads - 1] = testing::ReadAllState(*executable);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(Optimizers, PlanTheMemoryThatTheyHold) {
  for (const std::string& backend : testing::TestedAndReference()) {
    const Graph model = Model();
    const int64_t before = LiveBufferBytes();
    const std::unique_ptr<Executable> executable =
        testing::Compile(backend, model, GetParam().spec, {.max_rows = 4});
    EXPECT_EQ(LiveBufferBytes() - before, executable->memory_plan().buffers());
    int64_t kept = 0;
    for (const StateTensor& tensor : executable->state()) {
      if (tensor.kind == StateTensor::Kind::kOptimizerSlot ||
          tensor.kind == StateTensor::Kind::kAverage) {
        kept += ElementCount(tensor.shape) * int64_t{sizeof(float)};
      }
    }
    EXPECT_GE(executable->memory_plan().optimizer, kept);
    // Each tensor may be padded to the alignment of the arena.
    EXPECT_LE(executable->memory_plan().optimizer,
              kept + kArenaAlignment * static_cast<int64_t>(executable->state().size()));
    for (uint64_t step = 0; step < 2; ++step) {
      const auto batch = testing::RandomBatch(step, model, 4);
      ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
      ASSERT_TRUE(executable->Update(0.1).ok());
    }
    EXPECT_EQ(LiveBufferBytes() - before, executable->memory_plan().buffers());
  }
}

// Only the gradient has a NaN.
TEST_P(Optimizers, TellOfAGradientThatIsNotFinite) {
  for (const std::string& backend : testing::TestedAndReference()) {
    for (const double spoiled : {std::nan(""), HUGE_VAL}) {
      const std::unique_ptr<Executable> executable =
          testing::Compile(backend, Model(), GetParam().spec, {.max_rows = 4});
      testing::RandomizeState(3, *executable);
      Values sums = testing::ReadReduction(*executable);
      sums[100] = static_cast<float>(spoiled);
      testing::WriteReduction(*executable, sums);
      EXPECT_TRUE(std::isnan(executable->Update(0.1)->loss)) << backend;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Optimizers, ::testing::ValuesIn(kCases),
                         [](const ::testing::TestParamInfo<Case>& test) {
                           return std::string(test.param.name);
                         });

TEST(Averages, AreWhatEvaluateAndPredictUseUntilExchangedBack) {
  for (const std::string& backend : testing::TestedAndReference()) {
    const Graph model = Model();
    const std::unique_ptr<Executable> executable =
        testing::Compile(backend, model, {.ema_decay = 0.9}, {.max_rows = 4});
    testing::RandomizeState(3, *executable);
    for (uint64_t step = 0; step < 4; ++step) {
      const auto batch = testing::RandomBatch(step, model, 4);
      ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
      ASSERT_TRUE(executable->Update(0.5).ok());
    }
    // This executable has the averages as its parameters.
    const std::unique_ptr<Executable> averaged =
        testing::Compile(backend, model, {}, {.max_rows = 4});
    for (const StateTensor& tensor : averaged->state()) {
      const bool is_parameter = tensor.kind == StateTensor::Kind::kParameter;
      testing::WriteState(
          *averaged, tensor.name,
          testing::ReadState(*executable, (is_parameter ? "ema." : "") + tensor.name));
    }
    const auto batch = testing::RandomBatch(9, model, 4);
    const Values of_parameters = *executable->Predict(batch.inputs);
    const NamedValues before = testing::ReadAllState(*executable);
    ASSERT_TRUE(executable->ExchangeAverages().ok());
    EXPECT_EQ(*executable->Predict(batch.inputs), *averaged->Predict(batch.inputs));
    EXPECT_EQ(executable->Evaluate(batch.batch())->loss_sum,
              averaged->Evaluate(batch.batch())->loss_sum);
    ASSERT_TRUE(executable->ExchangeAverages().ok());
    EXPECT_EQ(*executable->Predict(batch.inputs), of_parameters);
    EXPECT_NE(*averaged->Predict(batch.inputs), of_parameters);
    EXPECT_EQ(testing::ReadAllState(*executable), before);
  }
}

TEST(Averages, AreRefusedWhereNoneAreKept) {
  for (const std::string& backend : testing::TestedAndReference()) {
    const absl::Status status =
        testing::Compile(backend, Model(), {}, {.max_rows = 4})->ExchangeAverages();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("ema_decay"));
  }
}

TEST(Optimizer, StateWithoutStepsOrAveragesIsThatOfThePlainRule) {
  const auto names = [](const OptimizerSpec& spec) {
    std::vector<std::string> kept;
    const std::unique_ptr<Executable> executable =
        testing::Compile("reference", Model(), spec, {.max_rows = 2});
    for (const StateTensor& tensor : executable->state()) {
      if (tensor.name.ends_with("conv.weight") || tensor.name == "step") {
        kept.push_back(tensor.name);
      }
    }
    return kept;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(names({}), ElementsAre("conv.weight"));
  EXPECT_THAT(names({.momentum = 0.9}), ElementsAre("conv.weight", "momentum.conv.weight"));
  EXPECT_THAT(names({.rule = Rule::kAdamW, .ema_decay = 0.9}),
              ElementsAre("conv.weight", "exp_avg.conv.weight", "exp_avg_sq.conv.weight", "step",
                          "ema.conv.weight"));
}

// 2^24 + 1 is no float: the count must neither wrap nor stop below it.
TEST(Optimizer, TheStepCountStaysAtItsEnd) {
  for (const std::string& backend : testing::TestedAndReference()) {
    const std::unique_ptr<Executable> executable =
        testing::Compile(backend, Model(), {.rule = Rule::kAdamW}, {.max_rows = 2});
    testing::WriteState(*executable, "step", {static_cast<float>(kMaxCountedSteps - 1)});
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(executable->Update(0.1).ok());
      EXPECT_EQ(testing::ReadState(*executable, "step"),
                Values{static_cast<float>(kMaxCountedSteps)});
    }
  }
}

}  // namespace
}  // namespace trainyard::engine
