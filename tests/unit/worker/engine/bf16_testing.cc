// Defines how far results may differ. A bf16 has 8 bits, an f16 has 11 (so the same bounds hold):
// one rounding errs by 2^-9 of the value at most, by a third of the square of that in the mean
// square, and roundings are independent. From the input to a gradient and back a value is rounded
// two or three times a layer, some 20 times in the deepest nets here: so errors in the norm stay
// near sqrt(20 / 3) 2^-9 = 0.5 %. The bound is four times that, as sums cancel, and errors do so
// less.
//
// A relu or a max_pool that decides over rounded values may decide otherwise within 2^-8 of a
// tie; an element that goes the other way is wrong by all of itself, and 1 in 200 of them make 7 %
// of the norm. So decisions are kept exact where that is possible: inputs and weights are small
// multiples of powers of two, so that the first layer's sums are exact in 8 bits, and a sum of
// products of exact values keeps its sign when it is rounded. The parameters of batch_norm keep its
// output away from 0. Models that still decide over rounded values get the wide bound.
#include "tests/unit/worker/engine/bf16_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"

namespace trainyard::engine::testing {
namespace {

constexpr double kTolerance = 0.02;
constexpr double kToleranceOfDecisions = 0.25;
// Keeps gradients of f16 away from values that it cannot hold. The factor is a power of two, so
// that it rounds nothing.
constexpr double kLossScale = 256;
// A part of the norm of all gradients. Below it, a gradient is what is left where larger ones
// cancel.
constexpr double kNegligible = 1.0 / 32;

double Norm(const Values& values) {
  double squares = 0;
  for (const float value : values) {
    squares += static_cast<double>(value) * value;
  }
  return std::sqrt(squares);
}

void ExpectNearInNorm(const Values& a, const Values& b, double tolerance, double floor,
                      const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  Values difference(a.size());
  std::transform(a.begin(), a.end(), b.begin(), difference.begin(), std::minus<>());
  EXPECT_LE(Norm(difference), tolerance * std::max(floor, Norm(b)))
      << what << ": norm " << Norm(b) << ", and at least " << floor;
}

// Returns true if some relu or max_pool sees values that bf16 may have rounded over a tie.
bool DecidesOverRounded(const Graph& model) {
  enum Kind { kExact, kSignExact, kRounded };
  std::vector<Kind> kinds(model.values.size(), kExact);
  for (const Node& node : model.nodes) {
    Kind kind = kExact;
    for (const ValueId input : node.inputs) {
      kind = std::max(kind, kinds[static_cast<size_t>(input)]);
    }
    switch (node.op) {
      case OpKind::kRelu:
        if (kind == kRounded) {
          return true;
        }
        break;
      case OpKind::kMaxPool:
        if (kind != kExact) {
          return true;
        }
        break;
      case OpKind::kConv2d:
      case OpKind::kLinear:
        if (node.inputs[0] != model.input) {
          kind = kind == kExact ? kSignExact : kRounded;
        }
        break;
      case OpKind::kFlatten:
      case OpKind::kConcat:
        break;
      default:
        kind = kRounded;
    }
    for (const ValueId output : node.outputs) {
      kinds[static_cast<size_t>(output)] = kind;
    }
  }
  return false;
}

void MakeDecisionsClear(const Graph& model, Executable& executable) {
  for (const StateTensor& tensor : executable.state()) {
    Values values = ReadState(executable, tensor.name);
    if (tensor.kind == StateTensor::Kind::kParameter && tensor.shape.size() > 1) {
      // Returns -step, 0 or step, with step a power of two near the standard deviation.
      const int64_t inputs = ElementCount(tensor.shape) / tensor.shape[0];
      const auto fan_in = static_cast<double>(inputs);
      const double step = std::exp2(std::round(-0.5 * std::log2(fan_in)));
      for (float& value : values) {
        value = static_cast<float>(std::round(1.5 * value / std::sqrt(3 / fan_in)) * step);
      }
    } else if (tensor.kind == StateTensor::Kind::kParameter && tensor.name.ends_with(".bias")) {
      for (float& value : values) {
        value = std::round(4 * value) / 4;
      }
    }
    WriteState(executable, tensor.name, values);
  }
  for (const Node& node : model.nodes) {
    if (node.op == OpKind::kBatchNorm) {
      const std::string& bias = model.value(node.inputs[2]).name;
      Values values = ReadState(executable, bias);
      for (float& value : values) {
        value += value < 0 ? -1.0f : 1.0f;
      }
      WriteState(executable, bias, values);
    }
  }
}

void ExpectGradientsNear(const Graph& model, Executable& actual, Executable& expected,
                         double tolerance, double loss_scale) {
  NamedValues a = Gradients(model, actual);
  for (auto& [name, values] : a) {
    for (float& value : values) {
      value = static_cast<float>(value / loss_scale);
    }
  }
  const NamedValues b = Gradients(model, expected);
  const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::map<std::string, double> norms;
  double whole = 0;
  for (const auto& [name, values] : b) {
    norms[layer(name)] = std::max(norms[layer(name)], Norm(values));
    whole = std::hypot(whole, Norm(values));
  }
  for (const auto& [name, values] : b) {
    // The gradient of a bias before batch_norm is 0, so its errors are those of the weight.
    ExpectNearInNorm(a.at(name), values, tolerance,
                     std::max(norms[layer(name)], kNegligible * whole), name);
  }
  const Inspection seen = *actual.Inspect();
  const Inspection judged = *expected.Inspect();
  EXPECT_NEAR(seen.loss, judged.loss, kTolerance);
  ExpectNearInNorm(Values(seen.logits.begin(), seen.logits.end()),
                   Values(judged.logits.begin(), judged.logits.end()), kTolerance, 1, "logits");
  ExpectNearInNorm(Values(seen.input_gradient.begin(), seen.input_gradient.end()),
                   Values(judged.input_gradient.begin(), judged.input_gradient.end()), tolerance,
                   kNegligible * whole, "input gradient");
}

}  // namespace

bool Has(Precision precision) {
  static auto* known = new std::map<Precision, bool>;
  const auto found = known->find(precision);
  if (found != known->end()) {
    return found->second;
  }
  GraphBuilder builder({1});
  builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.input(), 2));
  const bool has = (*MakeBackend(TestedBackend()))
                       ->Compile(*std::move(builder).Build(), {}, {.precision = precision})
                       .ok();
  return known->emplace(precision, has).first->second;
}

void CompareReduced(const Graph& model, int64_t rows, const PassOptions& passes,
                    Precision precision) {
  SCOPED_TRACE(std::string(PrecisionName(precision)));
  CompileOptions options = {.max_rows = rows, .passes = passes, .inspect = true};
  const std::unique_ptr<Executable> expected = Compile("reference_f64", model, {}, options);
  options.precision = precision;
  const std::unique_ptr<Executable> actual = Compile(TestedBackend(), model, {}, options);
  RandomizeState(5, *expected);
  MakeDecisionsClear(model, *expected);
  CopyState(*expected, *actual);
  const double loss_scale = precision == Precision::kF16 ? kLossScale : 1;
  if (precision == Precision::kF16) {
    WriteState(*actual, "loss_scale", {static_cast<float>(loss_scale), 0});
  }
  TestBatch batch = RandomBatch(9, model, rows);
  for (float& input : batch.inputs) {
    input = std::round(4 * input) / 4;
  }
  const double tolerance = DecidesOverRounded(model) ? kToleranceOfDecisions : kTolerance;
  // It runs twice: the first run overwrites the reduction, and the second adds to it.
  for (int time = 0; time < 2; ++time) {
    ASSERT_TRUE(expected->Accumulate(batch.batch(), 0.5, nullptr).ok());
    const absl::Status status = actual->Accumulate(batch.batch(), 0.5, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ExpectGradientsNear(model, *actual, *expected, tolerance, loss_scale);
  }
  ASSERT_TRUE(expected->Update(0.1).ok());
  ASSERT_TRUE(actual->Update(0.1).ok());
  for (const auto& [name, values] : ReadAllState(*expected)) {
    ExpectNearInNorm(ReadState(*actual, name), values, kTolerance, 1, name);
  }
  ExpectNearInNorm(*actual->Predict(batch.inputs), *expected->Predict(batch.inputs), 2 * kTolerance,
                   1, "predictions");
}

}  // namespace trainyard::engine::testing
