// Tests which nodes the calls before them take over, over the emulated cuBLASLt. That the numbers
// are right is tested against the reference.
#include "worker/engine/backend/cuda/taken_node.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cublaslt/cublaslt_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kWidth = 16;

class TakenNodes : public ::testing::Test {
 protected:
  void TearDown() override {
    cuda_on_cpu::RefuseGelu(false);
    cuda_on_cpu::RefuseEpilogues(false);
  }

  // Layers of tokens, with a head behind them.
  static Graph Model(const std::function<ValueId(GraphBuilder&, ValueId)>& layers) {
    GraphBuilder b = GraphBuilder::ForTokens(4, 9);
    const ValueId x = b.Embedding("tok", b.input(), kWidth);
    b.SoftmaxCrossEntropy(b.Linear("head", layers(b, x), 7));
    return *std::move(b).Build();
  }

  // Each has planners of its own, since they remember what was refused. The first proposals are
  // taken, which are those with the fewest kernels.
  static std::vector<CallWork> Work(const Graph& model, Precision precision = Precision::kBf16) {
    const std::unique_ptr<Backend> backend = *MakeCudaBackend({.autotunes = false});
    const auto compiled = backend->Compile(model, {}, {.max_rows = 2, .precision = precision});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    testing::RandomizeState(1, **compiled);
    const testing::TestBatch batch = testing::RandomBatch(2, model, 2);
    EXPECT_TRUE((*compiled)->StartStep(batch.batch(), 0.1).ok());
    EXPECT_TRUE((*compiled)->FinishUpdate().ok());
    return dynamic_cast<cuda::CudaExecutable&>(**compiled).StepWork();
  }

  // Returns "name: kernels" of the calls of the layer "fc", of gelu and of sums.
  static std::vector<std::string> Calls(const std::vector<CallWork>& work) {
    std::vector<std::string> calls;
    for (const CallWork& call : work) {
      if (absl::StartsWith(call.name, "fc ") || absl::StrContains(call.name, "gelu") ||
          call.op == "add") {
        calls.push_back(absl::StrCat(call.name, ": ", call.kernels));
      }
    }
    return calls;
  }

  const Graph gelu_ = Model([](GraphBuilder& b, ValueId x) {
    return b.Linear("out", b.Gelu(b.Linear("fc", x, 2 * kWidth), {.tanh = true}), kWidth);
  });
  const Graph sum_ =
      Model([](GraphBuilder& b, ValueId x) { return b.Add(x, b.Linear("fc", b.Tanh(x), kWidth)); });
};

TEST_F(TakenNodes, AreGeluByTanhAndItsGradient) {
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    EXPECT_THAT(Calls(Work(gelu_, precision)),
                ElementsAre("fc linear+gelu: 1", "out linear_input_gradient+gelu_gradient: 1",
                            "fc linear_parameter_gradient: 1", "fc linear_input_gradient: 1"));
  }
}

TEST_F(TakenNodes, AreSumsWithOlderValues) {
  EXPECT_THAT(Calls(Work(sum_)), ElementsAre("fc linear+add: 1", "fc linear_parameter_gradient: 1",
                                             "fc linear_input_gradient: 1", "tok.fan_out add: 1"));
  // The gradient of the first layer is added to that of the second, which comes first.
  const Graph both = Model([](GraphBuilder& b, ValueId x) {
    const ValueId first = b.Linear("fc", x, kWidth);
    const ValueId second = b.Tanh(b.Linear("out", x, kWidth));
    return b.Add(first, second);
  });
  EXPECT_THAT(Calls(Work(both)),
              ElementsAre("fc linear: 1", "add1 add: 1", "fc linear_parameter_gradient: 1",
                          "fc linear_input_gradient+add: 1"));
}

// In every type, the gradient of a layer norm is added to that of the sum around its block.
TEST_F(TakenNodes, AreSumsBehindTheGradientOfALayerNorm) {
  const Graph block = Model([](GraphBuilder& b, ValueId x) {
    return b.Add(x, b.Linear("fc", b.LayerNorm("fc_norm", x), kWidth));
  });
  for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kF16}) {
    const std::vector<CallWork> work = Work(block, precision);
    EXPECT_EQ(std::count_if(work.begin(), work.end(),
                            [](const CallWork& call) {
                              return call.name == "fc_norm layer_norm_gradient+add" &&
                                     call.kernels == 2;
                            }),
              1);
  }
}

TEST_F(TakenNodes, AreNoneOfAProductInF32) {
  for (const Precision precision : {Precision::kF32, Precision::kTf32}) {
    EXPECT_THAT(Calls(Work(gelu_, precision)),
                ElementsAre("fc linear: 1", "gelu1 gelu: 1", "gelu1 gelu_gradient: 1",
                            "fc linear_parameter_gradient: 1", "fc linear_parameter_gradient: 1",
                            "fc linear_input_gradient: 1"));
  }
}

TEST_F(TakenNodes, AreNeitherSumsOfWhatIsReadElsewhereNorExactGelu) {
  const Graph read_twice = Model([](GraphBuilder& b, ValueId x) {
    const ValueId y = b.Linear("fc", x, kWidth);
    const ValueId sum = b.Add(x, y);
    return b.Add(sum, b.Tanh(y));
  });
  const std::vector<CallWork> work = Work(read_twice);
  EXPECT_TRUE(std::none_of(work.begin(), work.end(), [](const CallWork& call) {
    return absl::StrContains(call.name, "fc linear+add");
  }));
  const Graph exact = Model([](GraphBuilder& b, ValueId x) {
    return b.Linear("out", b.Gelu(b.Linear("fc", x, kWidth)), kWidth);
  });
  EXPECT_EQ(Calls(Work(exact)).front(), "fc linear: 1");
}

TEST_F(TakenNodes, AreDoneByKernelsOfOursIfCublasRefuses) {
  cuda_on_cpu::RefuseGelu(true);
  EXPECT_THAT(Calls(Work(gelu_)),
              ElementsAre("fc linear+gelu: 2", "out linear_input_gradient+gelu_gradient: 2",
                          "fc linear_parameter_gradient: 1", "fc linear_input_gradient: 1"));
  cuda_on_cpu::RefuseEpilogues(true);
  EXPECT_THAT(Calls(Work(gelu_)),
              ElementsAre("fc linear+gelu: 3", "out linear_input_gradient+gelu_gradient: 2",
                          "fc linear_parameter_gradient: 2", "fc linear_input_gradient: 1"));
  // An addend is no epilogue.
  EXPECT_EQ(Calls(Work(sum_)).front(), "fc linear+add: 2");
}

// A call counts the work of both nodes, less what no longer passes through memory.
TEST_F(TakenNodes, AreCountedWithTheCall) {
  const auto total = [](const std::vector<CallWork>& work) {
    CallWork sum;
    for (const CallWork& call : work) {
      sum.kernels += call.kernels;
      sum.bytes += call.bytes + call.more_bytes;
      sum.flops += call.flops;
    }
    return sum;
  };
  const CallWork taken = total(Work(gelu_));
  cuda_on_cpu::RefuseGelu(true);
  const CallWork refused = total(Work(gelu_));
  EXPECT_EQ(refused.kernels, taken.kernels + 2);
  EXPECT_EQ(refused.flops, taken.flops);
  // GELU reads what the product wrote. Its gradient reads that and writes it again.
  const double bytes_of_hidden = 2 * 4 * 2 * kWidth * 2;
  EXPECT_EQ(refused.bytes, taken.bytes + 3 * bytes_of_hidden);
}

}  // namespace
}  // namespace trainyard::engine
