// Compares GPT-2 with its formulas, written out once more in double precision: logits, loss and, by
// central differences, gradients. Also tests what other programs rely on: names, shapes, numbers of
// parameters, initial values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::NamedValues;
using testing::TestBatch;
using testing::Values;

// The network as transformers computes it, for one row. Matrices are [in, out], vectors lie one
// after the other.
class Formulas {
 public:
  using Vector = std::vector<double>;

  Formulas(const Gpt2Spec& spec, const NamedValues& state) : spec_(spec) {
    for (const auto& [name, values] : state) {
      parameters_[name] = Vector(values.begin(), values.end());
    }
  }

  Vector& parameter(const std::string& name) { return parameters_.at(name); }

  // [context, vocabulary].
  Vector Logits(const float* tokens) const {
    const size_t width = Size(spec_.width);
    Vector x(Size(spec_.context) * width);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = Get("transformer.wte.weight")[Size(tokens[i / width]) * width + i % width] +
             Get("transformer.wpe.weight")[i];
    }
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      const std::string name = absl::StrCat("transformer.h.", layer);
      Vector y = Linear(name + ".attn.c_attn", Norm(name + ".ln_1", x));
      AddTo(x, Linear(name + ".attn.c_proj", Attention(y)));
      y = Linear(name + ".mlp.c_fc", Norm(name + ".ln_2", x));
      for (double& value : y) {
        const double cube = value + 0.044715 * value * value * value;
        value *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * cube));
      }
      AddTo(x, Linear(name + ".mlp.c_proj", y));
    }
    x = Norm("transformer.ln_f", x);
    Vector logits(Size(spec_.context) * Size(spec_.vocabulary));
    for (size_t i = 0; i < logits.size(); ++i) {
      const size_t position = i / Size(spec_.vocabulary);
      const size_t token = i % Size(spec_.vocabulary);
      for (size_t c = 0; c < width; ++c) {
        logits[i] += x[position * width + c] * Get("transformer.wte.weight")[token * width + c];
      }
    }
    return logits;
  }

  // Mean over all positions of all rows.
  double Loss(const TestBatch& batch) const {
    double sum = 0;
    for (size_t begin = 0; begin < batch.labels.size(); begin += Size(spec_.context)) {
      const Vector logits = Logits(batch.inputs.data() + begin);
      for (size_t t = 0; t < Size(spec_.context); ++t) {
        const double* at = logits.data() + t * Size(spec_.vocabulary);
        double total = 0;
        for (int64_t v = 0; v < spec_.vocabulary; ++v) total += std::exp(at[v]);
        sum += std::log(total) - at[batch.labels[begin + t]];
      }
    }
    return sum / static_cast<double>(batch.labels.size());
  }

 private:
  template <class Number>
  static size_t Size(Number number) {
    return static_cast<size_t>(number);
  }
  const Vector& Get(const std::string& name) const { return parameters_.at(name); }
  static void AddTo(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Vector Linear(const std::string& name, const Vector& x) const {
    const Vector& weight = Get(name + ".weight");
    const Vector& bias = Get(name + ".bias");
    const size_t out = bias.size();
    const size_t in = weight.size() / out;
    Vector y(x.size() / in * out);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = bias[i % out];
      for (size_t c = 0; c < in; ++c) y[i] += x[i / out * in + c] * weight[c * out + i % out];
    }
    return y;
  }

  Vector Norm(const std::string& name, const Vector& x) const {
    const size_t width = Size(spec_.width);
    Vector y(x.size());
    for (size_t begin = 0; begin < x.size(); begin += width) {
      double mean = 0, variance = 0;
      for (size_t c = 0; c < width; ++c) mean += x[begin + c] / static_cast<double>(width);
      for (size_t c = 0; c < width; ++c) {
        variance += (x[begin + c] - mean) * (x[begin + c] - mean) / static_cast<double>(width);
      }
      for (size_t c = 0; c < width; ++c) {
        y[begin + c] =
            (x[begin + c] - mean) / std::sqrt(variance + 1e-5) * Get(name + ".weight")[c] +
            Get(name + ".bias")[c];
      }
    }
    return y;
  }

  // x: [context, 3, heads, width / heads].
  Vector Attention(const Vector& x) const {
    const size_t width = Size(spec_.width);
    const size_t each = width / Size(spec_.heads);
    Vector y(x.size() / 3);
    for (size_t head = 0; head < width; head += each) {
      for (size_t t = 0; t < Size(spec_.context); ++t) {
        Vector weights(t + 1);
        double total = 0;
        for (size_t s = 0; s <= t; ++s) {
          double product = 0;
          for (size_t c = head; c < head + each; ++c) {
            product += x[t * 3 * width + c] * x[s * 3 * width + width + c];
          }
          weights[s] = std::exp(product / std::sqrt(static_cast<double>(each)));
          total += weights[s];
        }
        for (size_t c = head; c < head + each; ++c) {
          for (size_t s = 0; s <= t; ++s) {
            y[t * width + c] += weights[s] / total * x[s * 3 * width + 2 * width + c];
          }
        }
      }
    }
    return y;
  }

  const Gpt2Spec spec_;
  std::map<std::string, Vector> parameters_;
};

Graph Build(const Gpt2Spec& spec) {
  absl::StatusOr<Graph> graph = BuildGpt2(spec);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

void ExpectLogits(const Gpt2Spec& spec, const std::string& backend, int64_t rows, uint64_t seed,
                  double tolerance) {
  SCOPED_TRACE(absl::StrCat(backend, ": ", spec.layers, " layers, ", spec.heads, " heads, width ",
                            spec.width, ", context ", spec.context, ", vocabulary ",
                            spec.vocabulary, ", ", rows, " rows"));
  const Graph model = Build(spec);
  const std::unique_ptr<Executable> executable =
      testing::Compile(backend, model, {}, {.max_rows = rows, .inspect = true});
  testing::RandomizeState(seed, *executable);
  const Formulas formulas(spec, testing::ReadAllState(*executable));
  const TestBatch batch = testing::RandomBatch(seed, model, rows);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  EXPECT_NEAR(executable->Inspect()->loss, formulas.Loss(batch), tolerance);
  Values expected;
  for (int64_t row = 0; row < rows; ++row) {
    const Formulas::Vector logits = formulas.Logits(batch.inputs.data() + row * spec.context);
    expected.insert(expected.end(), logits.begin(), logits.end());
  }
  testing::ExpectNear(*executable->Predict(batch.inputs), expected, tolerance, "logits");
  const Evaluation evaluation = *executable->Evaluate(batch.batch());
  EXPECT_EQ(evaluation.rows, rows * spec.context);
  EXPECT_NEAR(evaluation.loss_sum / static_cast<double>(evaluation.rows), formulas.Loss(batch),
              tolerance);
}

Gpt2Spec RandomSpec(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&random](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Gpt2Spec spec;
  spec.layers = between(1, 3);
  spec.heads = between(1, 4);
  spec.width = spec.heads * between(2, 12);
  spec.context = between(1, 70);
  spec.vocabulary = between(2, 90);
  spec.dropout = 0;
  return spec;
}

TEST(Gpt2, FollowsItsFormulasForRandomShapes) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const int64_t rows = 1 + static_cast<int64_t>(seed % 4);
    ExpectLogits(RandomSpec(seed), "reference_f64", rows, seed, 1e-5);
    ExpectLogits(RandomSpec(seed), "cpu", rows, seed, 1e-4);
  }
}

TEST(Gpt2, HasTheSameGradientsOnBothBackendsForRandomShapes) {
  for (uint64_t seed = 21; seed <= 28; ++seed) {
    SCOPED_TRACE(seed);
    Gpt2Spec spec = RandomSpec(seed);
    spec.dropout = 0.2;
    const int64_t rows = 1 + static_cast<int64_t>(seed % 4);
    const Graph model = Build(spec);
    const auto gradients = [&](const std::string& backend) {
      const std::unique_ptr<Executable> executable =
          testing::Compile(backend, model, {}, {.max_rows = rows});
      testing::RandomizeState(seed, *executable);
      const TestBatch batch = testing::RandomBatch(seed, model, rows);
      EXPECT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
      return testing::Gradients(model, *executable);
    };
    testing::ExpectNear(gradients("cpu"), gradients("reference_f64"), 1e-4);
  }
}

TEST(Gpt2, HasTheGradientsOfItsFormulas) {
  const Gpt2Spec spec = {
      .layers = 2, .heads = 2, .width = 6, .context = 5, .vocabulary = 7, .dropout = 0};
  const Graph model = Build(spec);
  for (const char* backend : {"reference_f64", "reference", "cpu"}) {
    SCOPED_TRACE(backend);
    const std::unique_ptr<Executable> executable =
        testing::Compile(backend, model, {}, {.max_rows = 3});
    testing::RandomizeState(3, *executable);
    Formulas formulas(spec, testing::ReadAllState(*executable));
    const TestBatch batch = testing::RandomBatch(4, model, 3);
    ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    const NamedValues gradients = testing::Gradients(model, *executable);
    EXPECT_EQ(gradients.size(), 2 + 12 * 2 + 2u);
    for (const auto& [name, gradient] : gradients) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        constexpr double kStep = 1e-4;
        double& at = formulas.parameter(name)[i];
        const double middle = at;
        at = middle + kStep;
        const double above = formulas.Loss(batch);
        at = middle - kStep;
        const double below = formulas.Loss(batch);
        at = middle;
        ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), 2e-6) << name << "[" << i << "]";
      }
    }
  }
}

int64_t Parameters(const Gpt2Spec& spec) {
  int64_t count = 0;
  for (const Value& value : Build(spec).values) {
    if (value.role == Role::kParameter) count += ElementCount(value.shape);
  }
  return count;
}

// The numbers are those of transformers, in which the head is the embedding.
TEST(Gpt2, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(Parameters({}), 124'439'808);
  EXPECT_EQ(Parameters({.layers = 24, .heads = 16, .width = 1024}), 354'823'168);
  EXPECT_EQ(Parameters({.layers = 36, .heads = 20, .width = 1280}), 774'030'080);
  EXPECT_EQ(Parameters({.layers = 48, .heads = 25, .width = 1600}), 1'557'611'200);
}

TEST(Gpt2, HasTheNamesAndShapesOfTransformers) {
  std::vector<std::string> names;
  for (const Value& value : Build({.layers = 1}).values) {
    if (value.role == Role::kParameter) names.push_back(value.name + ShapeString(value.shape));
  }
  EXPECT_THAT(
      names,
      ElementsAre(
          "transformer.wte.weight[50257, 768]", "transformer.wpe.weight[1024, 768]",
          "transformer.h.0.ln_1.weight[768]", "transformer.h.0.ln_1.bias[768]",
          "transformer.h.0.attn.c_attn.weight[768, 2304]", "transformer.h.0.attn.c_attn.bias[2304]",
          "transformer.h.0.attn.c_proj.weight[768, 768]", "transformer.h.0.attn.c_proj.bias[768]",
          "transformer.h.0.ln_2.weight[768]", "transformer.h.0.ln_2.bias[768]",
          "transformer.h.0.mlp.c_fc.weight[768, 3072]", "transformer.h.0.mlp.c_fc.bias[3072]",
          "transformer.h.0.mlp.c_proj.weight[3072, 768]", "transformer.h.0.mlp.c_proj.bias[768]",
          "transformer.ln_f.weight[768]", "transformer.ln_f.bias[768]"));
}

TEST(Gpt2, StartsAsPublished) {
  const Graph model =
      Build({.layers = 8, .heads = 2, .width = 64, .context = 128, .vocabulary = 200});
  const std::unique_ptr<Executable> executable = testing::Compile("reference", model, {}, {});
  ASSERT_TRUE(InitializeParameters(1, *executable).ok());
  const auto deviation = [&](const std::string& name) {
    const Values values = testing::ReadState(*executable, name);
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    return std::sqrt(squares / static_cast<double>(values.size()));
  };
  // With the fewest values, 4,096, the measured deviation varies by 1.1 %.
  for (const char* name : {"wte", "wpe", "h.3.attn.c_attn", "h.7.mlp.c_fc"}) {
    EXPECT_NEAR(deviation(absl::StrCat("transformer.", name, ".weight")), 0.02, 0.001) << name;
  }
  for (const char* name : {"h.0.attn.c_proj", "h.7.mlp.c_proj"}) {
    EXPECT_NEAR(deviation(absl::StrCat("transformer.", name, ".weight")), 0.02 / 4, 0.00025);
    EXPECT_EQ(deviation(absl::StrCat("transformer.", name, ".bias")), 0) << name;
  }
  EXPECT_EQ(testing::ReadState(*executable, "transformer.h.2.ln_1.weight"), Values(64, 1.0f));
  EXPECT_EQ(deviation("transformer.ln_f.bias"), 0);
  EXPECT_EQ(deviation("transformer.h.0.attn.c_attn.bias"), 0);
}

TEST(Gpt2, DropsActivationsInTrainingAlone) {
  const Gpt2Spec spec = {
      .layers = 1, .heads = 2, .width = 8, .context = 6, .vocabulary = 9, .dropout = 0.5};
  const Graph model = Build(spec);
  int dropouts = 0;
  for (const Node& node : model.nodes) dropouts += node.op == OpKind::kDropout ? 1 : 0;
  EXPECT_EQ(dropouts, 3) << "after the embeddings and at the end of both halves of the block";
  const std::unique_ptr<Executable> executable =
      testing::Compile("cpu", model, {}, {.max_rows = 2, .inspect = true});
  testing::RandomizeState(2, *executable);
  const Formulas formulas(spec, testing::ReadAllState(*executable));
  const TestBatch batch = testing::RandomBatch(2, model, 2);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  EXPECT_GT(std::abs(executable->Inspect()->loss - formulas.Loss(batch)), 1e-3);
  const Evaluation evaluation = *executable->Evaluate(batch.batch());
  EXPECT_NEAR(evaluation.loss_sum / 12, formulas.Loss(batch), 1e-5);
}

TEST(Gpt2, SaysWhatIsWrongWithASpec) {
  const auto error = [](const Gpt2Spec& spec) {
    return std::string(BuildGpt2(spec).status().message());
  };
  EXPECT_THAT(error({.heads = 7}), AllOf(HasSubstr("width 768"), HasSubstr("7 heads")));
  EXPECT_THAT(error({.heads = 0}), HasSubstr("0 heads"));
  EXPECT_THAT(error({.layers = 0}), HasSubstr("0 layers"));
  EXPECT_THAT(error({.context = 0}), HasSubstr("layer 'input'"));
  EXPECT_THAT(error({.vocabulary = 1}), HasSubstr("a vocabulary of 1"));
}

}  // namespace
}  // namespace trainyard::engine
