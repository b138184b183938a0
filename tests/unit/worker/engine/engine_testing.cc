// Runs the same steps on several backends, and compares the results.
#include "tests/unit/worker/engine/engine_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"

namespace trainyard::engine::testing {
namespace {

std::string& TestedName() {
  static auto* name = new std::string("cpu");
  return *name;
}

DeviceCopy& GetDeviceCopy() {
  static auto* copy = new DeviceCopy;
  return *copy;
}

}  // namespace

const std::string& TestedBackend() {
  return TestedName();
}

void SetTestedBackend(const std::string& name) {
  TestedName() = name;
}

std::vector<std::string> TestedAndReference() {
  if (TestedBackend() != "cpu") {
    return {TestedBackend()};
  }
  return {"reference", TestedBackend()};
}

std::vector<std::string> AllBackends() {
  if (TestedBackend() != "cpu") {
    return {TestedBackend()};
  }
  return {"reference", "reference_f64", TestedBackend()};
}

Values RandomValues(uint64_t seed, int64_t count) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Values values(static_cast<size_t>(count));
  for (float& value : values) {
    value = uniform(random);
  }
  return values;
}

TestBatch TestBatch::Rows(int64_t begin, int64_t end) const {
  const int64_t width = static_cast<int64_t>(inputs.size() / labels.size()) * labels_per_row;
  return {Values(inputs.begin() + begin * width, inputs.begin() + end * width),
          std::vector<int32_t>(labels.begin() + begin * labels_per_row,
                               labels.begin() + end * labels_per_row),
          labels_per_row};
}

TestBatch RandomBatch(uint64_t seed, const Graph& model, int64_t rows) {
  TestBatch batch;
  batch.inputs = RandomValues(seed, rows * ElementCount(model.input_shape()));
  std::mt19937_64 random(seed + 1);
  for (float& token : batch.inputs) {
    if (model.vocabulary > 0) {
      token = static_cast<float>(random() % static_cast<uint64_t>(model.vocabulary));
    }
  }
  batch.labels_per_row = model.labels_per_row();
  for (int64_t label = 0; label < rows * batch.labels_per_row; ++label) {
    batch.labels.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(model.classes())));
  }
  return batch;
}

std::unique_ptr<Executable> Compile(const std::string& backend, const Graph& model,
                                    const OptimizerSpec& optimizer, const CompileOptions& options) {
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeBackend(backend);
  EXPECT_TRUE(made.ok()) << made.status();
  absl::StatusOr<std::unique_ptr<Executable>> executable =
      (*made)->Compile(model, optimizer, options);
  EXPECT_TRUE(executable.ok()) << executable.status();
  return *std::move(executable);
}

void RandomizeState(uint64_t seed, Executable& executable) {
  const std::vector<StateTensor>& state = executable.state();
  for (size_t i = 0; i < state.size(); ++i) {
    const std::string& name = state[i].name;
    Values values = RandomValues(seed + i, ElementCount(state[i].shape));
    const bool is_norm_weight = state[i].shape.size() == 1 && name.ends_with(".weight");
    if (state[i].kind != StateTensor::Kind::kParameter &&
        state[i].kind != StateTensor::Kind::kBuffer) {
      continue;
    }
    if (is_norm_weight || name.ends_with("running_var")) {
      for (float& value : values) {
        value = 1.0f + 0.5f * value;
      }
    }
    if (state[i].shape.size() > 1) {
      // Keeps activations of unit size through the layers.
      const int64_t inputs = ElementCount(state[i].shape) / state[i].shape[0];
      const auto fan_in = static_cast<double>(inputs);
      for (float& value : values) {
        value *= static_cast<float>(std::sqrt(3 / fan_in));
      }
    }
    EXPECT_TRUE(executable.WriteState(i, values).ok());
  }
}

void CopyState(const Executable& from, Executable& to) {
  for (size_t i = 0; i < from.state().size(); ++i) {
    Values values(static_cast<size_t>(ElementCount(from.state()[i].shape)));
    EXPECT_TRUE(from.ReadState(i, absl::MakeSpan(values)).ok());
    EXPECT_TRUE(to.WriteState(i, values).ok());
  }
}

Values ReadState(const ModelState& executable, const std::string& name) {
  for (size_t i = 0; i < executable.state().size(); ++i) {
    if (executable.state()[i].name == name) {
      Values values(static_cast<size_t>(ElementCount(executable.state()[i].shape)));
      EXPECT_TRUE(executable.ReadState(i, absl::MakeSpan(values)).ok());
      return values;
    }
  }
  ADD_FAILURE() << "no state tensor '" << name << "'";
  return {};
}

void WriteState(Executable& executable, const std::string& name, const Values& values) {
  for (size_t i = 0; i < executable.state().size(); ++i) {
    if (executable.state()[i].name == name) {
      const absl::Status status = executable.WriteState(i, values);
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
  }
  ADD_FAILURE() << "no state tensor '" << name << "'";
}

NamedValues ReadAllState(const Executable& executable) {
  NamedValues all;
  for (const StateTensor& tensor : executable.state()) {
    all[tensor.name] = ReadState(executable, tensor.name);
  }
  return all;
}

void SetDeviceCopy(DeviceCopy copy) {
  GetDeviceCopy() = std::move(copy);
}

void CopyBoundary(Executable& from, absl::Span<const float> values, Executable& to,
                  absl::Span<float> place) {
  ASSERT_EQ(values.size(), place.size());
  if (from.memory_kind() == MemoryKind::kHost) {
    std::copy(values.begin(), values.end(), place.begin());
    return;
  }
  ASSERT_TRUE(from.Synchronize().ok());
  ASSERT_TRUE(to.Synchronize().ok());
  GetDeviceCopy()(place.data(), values.data(), values.size() * sizeof(float));
}

Values ReadReduction(Executable& executable) {
  Values sums(executable.reduction().size());
  const absl::Status status = executable.ReadReduction(absl::MakeSpan(sums));
  EXPECT_TRUE(status.ok()) << status;
  return sums;
}

void WriteReduction(Executable& executable, const Values& sums) {
  const absl::Status status = executable.WriteReduction(sums);
  EXPECT_TRUE(status.ok()) << status;
}

NamedValues Gradients(const Graph& model, Executable& executable) {
  // The layout depends only on the model.
  const ReductionLayout layout = LayOutReduction(BuildTrainingStep(model, {}));
  const Values sums = ReadReduction(executable);
  NamedValues gradients;
  for (const ReductionEntry& entry : layout.entries) {
    if (entry.kind == ReductionEntry::Kind::kGradient) {
      gradients[model.value(entry.target).name] =
          Values(sums.begin() + entry.offset, sums.begin() + entry.offset + entry.count);
    }
  }
  return gradients;
}

namespace {

struct Difference {
  double error = 0;  // the largest |a - b|
  size_t where = 0;
  double largest = 1;  // max(1, largest |b|)
};

Difference DifferenceOf(const Values& a, const Values& b) {
  Difference found;
  for (size_t i = 0; i < a.size(); ++i) {
    found.largest = std::max(found.largest, std::abs(static_cast<double>(b[i])));
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= found.error)) {
      found.error = difference;
      found.where = i;
    }
  }
  return found;
}

}  // namespace

double LargestError(const NamedValues& a, const NamedValues& b) {
  double largest = 0;
  for (const auto& [name, values] : b) {
    const Difference found = DifferenceOf(a.at(name), values);
    const double error = found.error / found.largest;
    if (!(error <= largest)) largest = error;
  }
  return largest;
}

void ExpectNear(const Values& a, const Values& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  const Difference found = DifferenceOf(a, b);
  EXPECT_LE(found.error, tolerance * found.largest)
      << what << ": element " << found.where << " is " << a[found.where] << ", expected "
      << b[found.where];
}

void ExpectNear(const NamedValues& a, const NamedValues& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : b) {
    ASSERT_TRUE(a.contains(name)) << name;
    ExpectNear(a.at(name), values, tolerance, name);
  }
}

Graph Residuals(int64_t channels) {
  GraphBuilder b({channels, 5, 5});
  const layers::Conv2d conv = {.channels = channels, .padding = 1, .bias = false};
  ValueId x = b.Relu(b.Add(b.BatchNorm("bn1", b.Conv2d("conv1", b.input(), conv)), b.input()));
  ValueId main = b.BatchNorm("bn2", b.Conv2d("conv2", x, conv));
  x = b.Relu(b.Add(main, b.BatchNorm("bn3", b.Conv2d("conv3", x, conv))));
  x = b.Relu(b.Add(b.Tanh(x), b.BatchNorm("bn4", b.Conv2d("conv4", x, conv))));
  main = b.BatchNorm("bn5", b.Conv2d("conv5", x, conv));
  x = b.Relu(b.Add(main, b.AvgPool(x, {.kernel = 3, .stride = 1, .padding = 1})));
  main = b.Conv2d("conv6", b.Relu(b.BatchNorm("bn6", x)), conv);
  x = b.Add(main, x);
  x = b.Add(x, b.Conv2d("conv7", b.Relu(b.BatchNorm("bn7", x)), conv));
  main = b.BatchNorm("bn8", x);
  x = b.Relu(b.Add(main, main));
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.GlobalAvgPool(x)), 3));
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

Graph Inceptions(const std::vector<int64_t>& channels) {
  GraphBuilder b({3, 6, 5});
  const auto conv = [&b](const std::string& name, ValueId x, int64_t out, int64_t kernel) {
    x = b.Conv2d(name + ".conv", x,
                 {.channels = out, .kernel = kernel, .padding = kernel / 2, .bias = false});
    return b.Relu(b.BatchNorm(name + ".bn", x));
  };
  ValueId x = conv("stem", b.input(), channels[0], 3);
  for (const std::string name : {"a", "b"}) {
    x = b.Concat(
        {conv(name + "1", x, channels[1], 1),
         conv(name + "2b", conv(name + "2a", x, channels[2], 1), channels[0], 3),
         conv(name + "3b", conv(name + "3a", x, channels[3], 1), channels[1], 3),
         conv(name + "4", b.MaxPool(x, {.kernel = 3, .stride = 1, .padding = 1}), channels[2], 1)});
  }
  // Siblings with biases, rectified, one of them read twice and none by a norm.
  const ValueId first = b.Relu(b.Conv2d("first", x, {.channels = channels[1], .kernel = 1}));
  const ValueId second = b.Relu(b.Conv2d("second", x, {.channels = channels[1], .kernel = 1}));
  x = b.Concat({b.Add(first, second), first, b.Tanh(second)});
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.GlobalAvgPool(x)), 3));
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

std::string RenderGraph(const Graph& graph) {
  std::string text;
  auto names = [&graph](const std::vector<ValueId>& ids) {
    return absl::StrJoin(ids, ", ", [&graph](std::string* out, ValueId id) {
      if (id == kNoValue) {
        absl::StrAppend(out, "-");
      } else {
        absl::StrAppend(out, graph.value(id).name, ShapeString(graph.value(id).shape));
      }
    });
  };
  for (const Node& node : graph.nodes) {
    absl::StrAppend(&text, names(node.outputs), " = ", OpName(node.op), node.relu ? "+relu" : "",
                    "(", names(node.inputs), ")",
                    absl::StrJoin(node.overwrites, "",
                                  [](std::string* out, const Node::Overwrite& overwrite) {
                                    absl::StrAppend(out, " output ", overwrite.output,
                                                    " over input ", overwrite.input);
                                  }),
                    "\n");
  }
  return text;
}

}  // namespace trainyard::engine::testing
