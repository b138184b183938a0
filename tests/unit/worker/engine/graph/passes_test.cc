// Tests the passes: a pass is right if the reference backend gives the same numbers with and
// without it.
#include "worker/engine/graph/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/memory_plan.h"
#include "worker/engine/graph/shared_storage.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

// A network with everything that the passes look for: fused relus of all kinds, pools of rectified
// and other values, residual sums, values used twice, element-wise chains.
Graph ManyPatterns() {
  GraphBuilder b({2, 8, 8});
  ValueId x = b.MaxPool(b.input(), {.kernel = 3, .stride = 1, .padding = 1});
  x = b.Conv2d("conv1", x, {.channels = 4, .padding = 1});
  x = b.Relu(b.BatchNorm("bn1", x));
  ValueId branch = b.Relu(b.Conv2d("conv2", x, {.channels = 4, .padding = 1}));
  branch = b.BatchNorm("bn2", b.Conv2d("conv3", branch, {.channels = 4, .padding = 1}));
  x = b.Relu(b.Add(branch, x));
  x = b.MaxPool(x, {.kernel = 2});
  x = b.Relu(b.Conv2d("conv4", x, {.channels = 5, .padding = 1}));
  x = b.MaxPool(x, {.kernel = 3, .stride = 2, .padding = 1});
  x = b.Relu(b.Tanh(x));
  x = b.Relu(b.Linear("fc1", b.Flatten(x), 6));
  b.SoftmaxCrossEntropy(b.Linear("fc2", x, 3));
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

// The other ops: values that are concatenated twice, overwritten in place, dropped, normalised.
Graph OtherOps() {
  GraphBuilder b({3, 6, 6});
  ValueId x = b.Relu(b.Conv2d("conv1", b.input(), {.channels = 4, .padding = 1}));
  x = b.Concat({b.Gelu(x), b.Sigmoid(b.Tanh(x)), x, b.input()});
  x = b.Lrn(x, {.size = 3, .alpha = 0.1});
  x = b.MaxPool(b.Relu(b.Dropout(x, 0.3)), {.kernel = 3, .stride = 2, .ceil_mode = true});
  x = b.Gelu(b.Gelu(b.Flatten(x), {.tanh = true}));
  x = b.Dropout(b.Relu(b.Linear("fc1", x, 6)), 0.5);
  b.SoftmaxCrossEntropy(b.Linear("fc2", x, 3), 0.1);
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

Graph Sequences() {
  GraphBuilder b = GraphBuilder::ForTokens(4, 5);
  ValueId x = b.PositionEmbedding("pos", b.Embedding("tok", b.input(), 6));
  const ValueId y = b.Attention(b.Linear("qkv", b.LayerNorm("ln1", x), 18), 2);
  x = b.Add(x, b.Dropout(b.Gelu(b.Relu(b.Linear("proj", y, 6))), 0.2));
  b.SoftmaxCrossEntropy(b.Linear("head", b.Tanh(b.LayerNorm("ln2", x)), 3));
  absl::StatusOr<Graph> graph = std::move(b).Build();
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

struct Numbers {
  testing::NamedValues gradients, state;
  std::vector<double> logits, input_gradient;
  std::vector<float> predictions;
};

Numbers RunSteps(const Graph& model, const PassOptions& passes,
                 const std::string& backend = "reference") {
  const std::unique_ptr<Executable> executable = testing::Compile(
      backend, model, {.momentum = 0.9}, {.max_rows = 5, .passes = passes, .inspect = true});
  testing::RandomizeState(3, *executable);
  Numbers numbers;
  for (uint64_t step = 0; step < 2; ++step) {
    const testing::TestBatch batch = testing::RandomBatch(step, model, 5);
    EXPECT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
    numbers.gradients = testing::Gradients(model, *executable);
    numbers.logits = executable->Inspect()->logits;
    numbers.input_gradient = executable->Inspect()->input_gradient;
    EXPECT_TRUE(executable->Update(0.05).ok());
    numbers.predictions = *executable->Predict(batch.inputs);
  }
  numbers.state = testing::ReadAllState(*executable);
  return numbers;
}

void ExpectSameNumbers(const PassOptions& passes) {
  for (const Graph& model : {ManyPatterns(), OtherOps(), Sequences(), testing::Residuals(4),
                             testing::Inceptions({4, 3, 2, 5})}) {
    const Numbers plain = RunSteps(model, testing::kNoPasses);
    const Numbers passed = RunSteps(model, passes);
    EXPECT_EQ(passed.gradients, plain.gradients);
    EXPECT_EQ(passed.state, plain.state);
    EXPECT_EQ(passed.logits, plain.logits);
    EXPECT_EQ(passed.input_gradient, plain.input_gradient);
    EXPECT_EQ(passed.predictions, plain.predictions);
  }
}

int64_t Count(const StepGraph& step, OpKind op) {
  return std::count_if(step.graph.nodes.begin(), step.graph.nodes.end(),
                       [op](const Node& node) { return node.op == op; });
}

TEST(FuseRelu, KeepsEveryNumber) {
  PassOptions passes = testing::kNoPasses;
  passes.fuse_relu = true;
  ExpectSameNumbers(passes);
}

TEST(FuseRelu, LeavesOnlyRelusThatFollowNothingFusible) {
  PassOptions passes = testing::kNoPasses;
  EXPECT_EQ(Count(BuildTrainingStep(ManyPatterns(), {passes, false}), OpKind::kRelu), 6);
  passes.fuse_relu = true;
  // These nodes come after the add and after the tanh.
  EXPECT_EQ(Count(BuildTrainingStep(ManyPatterns(), {passes, false}), OpKind::kRelu), 2);
}

TEST(FuseRelu, LeavesAReluWhoseInputOthersRead) {
  GraphBuilder b({4});
  const ValueId x = b.Linear("fc1", b.input(), 4);
  b.SoftmaxCrossEntropy(b.Linear("fc2", b.Add(x, b.Relu(x)), 3));
  const StepGraph step = BuildTrainingStep(*std::move(b).Build(), {});
  EXPECT_EQ(Count(step, OpKind::kRelu), 1);
}

TEST(FuseReluIntoMaxPoolGradient, KeepsEveryNumber) {
  PassOptions passes = testing::kNoPasses;
  passes.fuse_relu_into_max_pool_gradient = true;
  ExpectSameNumbers(passes);
}

TEST(FuseReluIntoMaxPoolGradient, DropsTheReluGradients) {
  const StepGraph step = BuildTrainingStep(*BuildConvnet({.input = {1, 8, 8}}), {});
  EXPECT_EQ(Count(step, OpKind::kReluGradient), 0);
  PassOptions passes;
  passes.fuse_relu_into_max_pool_gradient = false;
  EXPECT_EQ(Count(BuildTrainingStep(*BuildConvnet({.input = {1, 8, 8}}), {passes, false}),
                  OpKind::kReluGradient),
            2);
}

TEST(FuseResidual, KeepsEveryNumber) {
  PassOptions passes = testing::kNoPasses;
  passes.fuse_residual = true;
  ExpectSameNumbers(passes);
  passes.fuse_gradient_sums = true;
  ExpectSameNumbers(passes);
}

TEST(FuseResidual, LeavesNoAddAndNoReluInAResnet) {
  PassOptions passes = testing::kNoPasses;
  passes.fuse_relu = true;
  const Graph model = *BuildResnet({.input = {3, 8, 8}, .depth = 20, .stem = Stem::kCifar});
  const StepGraph before = BuildTrainingStep(model, {passes, false});
  EXPECT_EQ(Count(before, OpKind::kRelu), 9);
  EXPECT_EQ(Count(before, OpKind::kReluGradient), 9);
  passes.fuse_residual = true;
  const StepGraph after = BuildTrainingStep(model, {passes, false});
  EXPECT_EQ(Count(after, OpKind::kRelu), 0);
  EXPECT_EQ(Count(after, OpKind::kReluGradient), 0);
  // The remaining ones are the gradients of values that two branches read.
  EXPECT_EQ(Count(before, OpKind::kAdd) - Count(after, OpKind::kAdd), 9);
  EXPECT_EQ(Count(BuildEvaluationStep(model, {passes, false}), OpKind::kAdd), 0);
}

TEST(FuseGradientSums, KeepsEveryNumber) {
  PassOptions passes = testing::kNoPasses;
  passes.fuse_gradient_sums = true;
  ExpectSameNumbers(passes);
}

TEST(FuseGradientSums, LeavesNoAddToTheGradientsOfResidualNetworks) {
  const Graph resnet = *BuildResnet({.input = {3, 8, 8}, .depth = 20, .stem = Stem::kCifar});
  // The sum for the first block's input stays, since no residual block ends its gradient.
  EXPECT_EQ(Count(BuildTrainingStep(resnet, {}), OpKind::kAdd), 1);
  // The forward sums of a network with norms before the convolutions stay.
  const Graph wide = *BuildWideResnet({.input = {3, 8, 8}, .depth = 16, .width = 1});
  EXPECT_LE(Count(BuildTrainingStep(wide, {}), OpKind::kAdd), 6 + 3);
}

TEST(MergeSiblings, KeepsEveryNumberUpToTheOrderOfSums) {
  PassOptions passes = testing::kNoPasses;
  passes.merge_siblings = true;
  const Graph model = testing::Inceptions({4, 3, 2, 5});
  // Parameters and the reduction arena are of single precision.
  constexpr double kTolerance = 1e-6;
  const Numbers plain = RunSteps(model, testing::kNoPasses, "reference_f64");
  const Numbers merged = RunSteps(model, passes, "reference_f64");
  testing::ExpectNear(merged.gradients, plain.gradients, kTolerance);
  testing::ExpectNear(merged.state, plain.state, kTolerance);
  for (size_t i = 0; i < plain.input_gradient.size(); ++i) {
    ASSERT_NEAR(merged.input_gradient[i], plain.input_gradient[i], kTolerance);
  }
  for (size_t i = 0; i < plain.logits.size(); ++i) {
    ASSERT_NEAR(merged.logits[i], plain.logits[i], kTolerance);
  }
}

TEST(MergeSiblings, LeavesOneConvolutionAndOneInputGradientOfEachGroup) {
  const Graph model = testing::Inceptions({4, 3, 2, 5});
  PassOptions passes = testing::kNoPasses;
  const StepGraph before = BuildTrainingStep(model, {passes, false});
  passes.merge_siblings = true;
  const StepGraph after = BuildTrainingStep(model, {passes, false});
  // In each module three convolutions become one, and at the end two become one.
  for (const OpKind op :
       {OpKind::kConv2d, OpKind::kConv2dInputGradient, OpKind::kConv2dParameterGradient}) {
    EXPECT_EQ(Count(before, op) - Count(after, op), 2 + 2 + 1) << OpName(op);
  }
  EXPECT_EQ(Count(before, OpKind::kAdd) - Count(after, OpKind::kAdd), 2 + 2 + 1);
  EXPECT_EQ(Count(BuildEvaluationStep(model, {passes, false}), OpKind::kConv2d),
            Count(after, OpKind::kConv2d));
}

TEST(RecomputeNorms, KeepsEveryNumber) {
  PassOptions passes = testing::kNoPasses;
  passes.recompute_norms = true;
  ExpectSameNumbers(passes);
  passes.fuse_relu = true;
  ExpectSameNumbers(passes);
}

TEST(RecomputeNorms, KeepsNoOutputOfANormBetweenTwoConvolutions) {
  const Graph model = *BuildWideResnet({.input = {3, 8, 8}, .depth = 16, .width = 1});
  PassOptions passes;
  passes.recompute_norms = false;
  const StepGraph before = BuildTrainingStep(model, {passes, false});
  const StepGraph after = BuildTrainingStep(model, {});
  // All norms but the last, which pooling follows; the first of three blocks has two readers.
  EXPECT_EQ(Count(after, OpKind::kBatchNorm) - Count(before, OpKind::kBatchNorm), 12);
  const auto bytes = [](const StepGraph& step) {
    return PlanArena(ComputeLifetimes(step, 16, 4).lifetimes).bytes;
  };
  EXPECT_LT(static_cast<double>(bytes(after)), 0.75 * static_cast<double>(bytes(before)));
}

TEST(PlaceParts, FindsThePartsThatNormsMakeAndTheSlicesThatTheyRead) {
  const StepGraph step = BuildTrainingStep(testing::Inceptions({4, 3, 2, 5}), {});
  int placed = 0;
  int copied = 0;
  for (const Node& node : step.graph.nodes) {
    if (node.op == OpKind::kConcat) {
      for (const bool is_placed : node.concat().placed) {
        ++(is_placed ? placed : copied);
      }
    } else if (node.op == OpKind::kSlice) {
      ++(node.slice().is_view ? placed : copied);
    }
  }
  // Each module has 4 parts, 4 slices of its gradient, 3 slices of the merged convolution and 3
  // parts of its gradient. At the end, where there are no norms: 3 and 3, 2 and 2.
  EXPECT_EQ(placed, 2 * (4 + 4 + 3 + 3));
  EXPECT_EQ(copied, 3 + 3 + 2 + 2);
}

TEST(RemoveDeadCode, KeepsEveryNumber) {
  PassOptions passes = testing::kNoPasses;
  passes.remove_dead_code = true;
  ExpectSameNumbers(passes);
}

TEST(RemoveDeadCode, DropsTheIndexOfAPoolThroughWhichNothingFlowsBack) {
  // The first pool works on the input, whose gradient is not needed.
  const StepGraph step = BuildTrainingStep(ManyPatterns(), {});
  ASSERT_EQ(step.graph.nodes[0].op, OpKind::kMaxPool);
  EXPECT_EQ(step.graph.nodes[0].outputs[1], kNoValue);
  // In an evaluation no pool needs its index.
  for (const Node& node : BuildEvaluationStep(ManyPatterns(), {}).graph.nodes) {
    if (node.op == OpKind::kMaxPool) {
      EXPECT_EQ(node.outputs[1], kNoValue) << node.name;
    }
  }
}

TEST(ReuseInPlace, KeepsEveryNumber) {
  PassOptions passes = testing::kNoPasses;
  passes.reuse_in_place = true;
  ExpectSameNumbers(passes);
}

TEST(ReuseInPlace, NeverOverwritesAValueThatIsReadLater) {
  const StepGraph step = BuildTrainingStep(ManyPatterns(), {});
  const std::vector<ValueId> storage = SharedStorage(step.graph);
  int in_place = 0;
  for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    for (const Node::Overwrite& overwrite : node.overwrites) {
      ++in_place;
      const ValueId over = node.inputs[static_cast<size_t>(overwrite.input)];
      for (size_t later = i + 1; later < step.graph.nodes.size(); ++later) {
        for (ValueId input : step.graph.nodes[later].inputs) {
          EXPECT_NE(input, over);
        }
      }
      const ValueId output = node.outputs[static_cast<size_t>(overwrite.output)];
      EXPECT_EQ(storage[static_cast<size_t>(output)], storage[static_cast<size_t>(over)]);
    }
  }
  EXPECT_GE(in_place, 3);
}

TEST(AllPasses, KeepEveryNumberTogether) {
  PassOptions passes;
  passes.merge_siblings = false;  // equal up to rounding only
  ExpectSameNumbers(passes);
}

TEST(AllPasses, KeepTheLayoutOfTheReduction) {
  for (const Graph& model :
       {ManyPatterns(), testing::Residuals(4), testing::Inceptions({4, 3, 2, 5})}) {
    const ReductionLayout plain =
        LayOutReduction(BuildTrainingStep(model, {testing::kNoPasses, false}));
    const ReductionLayout passed = LayOutReduction(BuildTrainingStep(model, {}));
    ASSERT_EQ(passed.entries.size(), plain.entries.size());
    for (size_t i = 0; i < plain.entries.size(); ++i) {
      EXPECT_EQ(passed.entries[i].target, plain.entries[i].target);
      EXPECT_EQ(passed.entries[i].offset, plain.entries[i].offset);
    }
  }
}

}  // namespace
}  // namespace trainyard::engine
