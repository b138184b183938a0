// Compares three training steps of small nets with PyTorch's numbers in tests/data/reference: every
// logit, loss, gradient, parameter, optimizer slot and running statistic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/paths.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using testing::TestBatch;
using testing::Values;

// One file of reference numbers, and which of its tensors have been compared.
class Numbers {
 public:
  explicit Numbers(checkpoint::TensorFile file)
      : file_(std::move(file)), errors_(nlohmann::json::parse(file_.metadata.at("f32_error"))) {}

  bool Has(const std::string& name) const { return file_.tensors.contains(name); }

  Values Get(const std::string& name) const {
    if (file_.tensors.at(name).dtype == "I64") {
      const std::vector<int64_t> numbers = GetIntegers(name);
      return Values(numbers.begin(), numbers.end());
    }
    const absl::StatusOr<Values> values = checkpoint::FloatValues(file_.tensors.at(name));
    EXPECT_TRUE(values.ok()) << values.status();
    return *values;
  }

  TestBatch GetBatch(int k) const {
    TestBatch batch;
    batch.inputs = Get(absl::StrCat("x.", k));
    for (const int64_t label : GetIntegers(absl::StrCat("y.", k))) {
      batch.labels.push_back(static_cast<int32_t>(label));
    }
    const int64_t rows = file_.tensors.at(absl::StrCat("x.", k)).shape[0];
    batch.labels_per_row = static_cast<int64_t>(batch.labels.size()) / rows;
    return batch;
  }

  // The tolerance of the reference is 20 times the error of another f32 run, plus 1e-6 of the
  // largest value.
  void Compare(const std::string& name, const Values& actual) {
    const Values expected = Get(name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    const double tolerance =
        20 * errors_[name][0].get<double>() + 1e-6 * errors_[name][1].get<double>();
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], tolerance) << name << " element " << i;
    }
    compared_.insert(name);
  }

  std::vector<std::string> NamesWith(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : file_.tensors) {
      if (absl::StartsWith(name, prefix)) {
        names.push_back(name.substr(prefix.size()));
      }
    }
    return names;
  }

  // Every tensor that has an error bound is an expectation.
  void ExpectAllCompared() const {
    for (const auto& [name, bound] : errors_.items()) {
      EXPECT_TRUE(compared_.contains(name)) << name << " was not compared";
    }
  }

 private:
  std::vector<int64_t> GetIntegers(const std::string& name) const {
    const std::string& data = file_.tensors.at(name).data;
    std::vector<int64_t> numbers(data.size() / sizeof(int64_t));
    std::memcpy(numbers.data(), data.data(), data.size());
    return numbers;
  }

  checkpoint::TensorFile file_;
  nlohmann::json errors_;
  std::set<std::string> compared_;
};

Graph ReluTanhMlp() {
  GraphBuilder b({20});
  ValueId x = b.Relu(b.Linear("fc1", b.input(), 16));
  x = b.Tanh(b.Linear("fc2", x, 12));
  b.SoftmaxCrossEntropy(b.Linear("fc3", x, 5));
  return *std::move(b).Build();
}

Graph ReferenceConvnet() {
  return *BuildConvnet({.input = {3, 12, 12}, .channels = {8, 12}});
}

ValueId Block(GraphBuilder& b, const std::string& name, ValueId x, int64_t channels,
              int64_t stride) {
  const auto conv = [&](const std::string& suffix, ValueId from, int64_t kernel, int64_t step) {
    return b.Conv2d(name + suffix, from,
                    {.channels = channels,
                     .kernel = kernel,
                     .stride = step,
                     .padding = kernel / 2,
                     .bias = false});
  };
  ValueId branch = b.Relu(b.BatchNorm(name + ".bn1", conv(".conv1", x, 3, stride)));
  branch = b.BatchNorm(name + ".bn2", conv(".conv2", branch, 3, 1));
  const ValueId short_cut =
      stride == 1 ? x : b.BatchNorm(name + ".down.1", conv(".down.0", x, 1, stride));
  return b.Relu(b.Add(branch, short_cut));
}

Graph Resnet() {
  GraphBuilder b({3, 12, 12});
  ValueId x =
      b.Conv2d("conv", b.input(), {.channels = 4, .kernel = 3, .padding = 1, .bias = false});
  x = b.Relu(b.BatchNorm("bn", x));
  x = Block(b, "blocks.0", x, 4, 1);
  x = Block(b, "blocks.1", x, 8, 2);
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.GlobalAvgPool(x)), 10));
  return *std::move(b).Build();
}

Graph Transformer() {
  constexpr int64_t kWidth = 16;
  GraphBuilder b = GraphBuilder::ForTokens(8, 23);
  ValueId x = b.PositionEmbedding("pos", b.Embedding("tok", b.input(), kWidth));
  const ValueId heads = b.Linear("qkv", b.LayerNorm("ln1", x), 3 * kWidth);
  x = b.Add(x, b.Linear("proj", b.Attention(heads, 4), kWidth));
  const ValueId hidden = b.Gelu(b.Linear("fc1", b.LayerNorm("ln2", x), 4 * kWidth));
  x = b.Add(x, b.Linear("fc2", hidden, kWidth));
  b.SoftmaxCrossEntropy(b.Linear("head", b.LayerNorm("lnf", x), 23, false));
  return *std::move(b).Build();
}

struct Case {
  const char* name;
  Graph (*build)();
  OptimizerSpec optimizer;
  int parts = 1;  // of each batch, accumulated with equal weights
  double lr = 0.05;
};

constexpr OptimizerSpec kNesterov = {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4};
constexpr OptimizerSpec kHeavyBall = {.momentum = 0.9, .weight_decay = 1e-3};
constexpr OptimizerSpec kAdamW = {.rule = OptimizerSpec::Rule::kAdamW, .weight_decay = 0.1};

const Case kCases[] = {
    {"mlp", ReluTanhMlp, kNesterov},
    {"mlp_sgd_heavyball", ReluTanhMlp, kHeavyBall},
    {"mlp_adamw", ReluTanhMlp, kAdamW, 1, 0.01},
    {"convnet", ReferenceConvnet, kNesterov},
    {"convnet_dp2", ReferenceConvnet, kNesterov, 2},
    {"resnet", Resnet, kNesterov},
    {"transformer", Transformer, kNesterov},
};

class ReferenceNumbers : public ::testing::TestWithParam<std::tuple<Case, const char*>> {};

TEST_P(ReferenceNumbers, AreReproduced) {
  const Case& c = std::get<0>(GetParam());
  absl::StatusOr<checkpoint::TensorFile> file = checkpoint::ReadSafetensors(
      trainyard::testing::ReferencePath(absl::StrCat(c.name, ".safetensors")));
  ASSERT_TRUE(file.ok()) << file.status();
  Numbers numbers(*std::move(file));
  const Graph model = c.build();
  const int64_t rows =
      static_cast<int64_t>(numbers.Get("x.0").size()) / ElementCount(model.input_shape());
  const std::unique_ptr<Executable> executable = testing::Compile(
      std::get<1>(GetParam()), model, c.optimizer, {.max_rows = rows, .inspect = true});
  for (const char* prefix : {"init.", "initbuf."}) {
    for (const std::string& name : numbers.NamesWith(prefix)) {
      testing::WriteState(*executable, name, numbers.Get(prefix + name));
    }
  }
  for (int step = 0; step < 3; ++step) {
    const TestBatch batch = numbers.GetBatch(step);
    Values logits;
    Values input_gradient;
    for (int part = 0; part < c.parts; ++part) {
      const TestBatch slice = batch.Rows(part * rows / c.parts, (part + 1) * rows / c.parts);
      const absl::Status status = executable->Accumulate(slice.batch(), 1.0 / c.parts, nullptr);
      ASSERT_TRUE(status.ok()) << status;
      const Inspection inspection = *executable->Inspect();
      logits.insert(logits.end(), inspection.logits.begin(), inspection.logits.end());
      input_gradient.insert(input_gradient.end(), inspection.input_gradient.begin(),
                            inspection.input_gradient.end());
    }
    numbers.Compare(absl::StrCat("out.", step), logits);
    if (step == 0) {
      if (numbers.Has("gradx")) {
        numbers.Compare("gradx", input_gradient);
      }
      for (const auto& [name, gradient] : testing::Gradients(model, *executable)) {
        numbers.Compare("grad." + name, gradient);
      }
    }
    const absl::StatusOr<StepMetrics> metrics = executable->Update(c.lr);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    numbers.Compare(absl::StrCat("loss.", step), {static_cast<float>(metrics->loss)});
    if (step == 0) {
      for (const std::string& name : numbers.NamesWith("after1.")) {
        numbers.Compare("after1." + name, testing::ReadState(*executable, name));
      }
    }
  }
  for (const std::string& name : numbers.NamesWith("after3.")) {
    numbers.Compare("after3." + name, testing::ReadState(*executable, name));
  }
  for (const std::string& name : numbers.NamesWith("mom3.")) {
    numbers.Compare("mom3." + name, testing::ReadState(*executable, "momentum." + name));
  }
  for (const std::string& name : numbers.NamesWith("m3.")) {
    numbers.Compare("m3." + name, testing::ReadState(*executable, "exp_avg." + name));
  }
  for (const std::string& name : numbers.NamesWith("v3.")) {
    numbers.Compare("v3." + name, testing::ReadState(*executable, "exp_avg_sq." + name));
  }
  for (const std::string& name : numbers.NamesWith("afterbuf3.")) {
    numbers.Compare("afterbuf3." + name, testing::ReadState(*executable, name));
  }
  if (c.parts == 1) {
    const TestBatch batch = numbers.GetBatch(0);
    numbers.Compare("eval.out", *executable->Predict(batch.inputs));
    const Evaluation evaluation = *executable->Evaluate(batch.batch());
    numbers.Compare("eval.loss", {static_cast<float>(evaluation.loss_sum /
                                                     static_cast<double>(evaluation.rows))});
  }
  numbers.ExpectAllCompared();
}

INSTANTIATE_TEST_SUITE_P(Nets, ReferenceNumbers,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values("reference", "reference_f64", "cpu")),
                         [](const ::testing::TestParamInfo<ReferenceNumbers::ParamType>& test) {
                           return absl::StrCat(std::get<0>(test.param).name, "_",
                                               std::get<1>(test.param));
                         });

}  // namespace
}  // namespace trainyard::engine
