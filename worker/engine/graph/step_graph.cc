#include "worker/engine/graph/step_graph.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/passes.h"

namespace trainyard::engine {
namespace {

std::vector<BatchStatistics> CollectStatistics(const Graph& graph) {
  std::vector<BatchStatistics> statistics;
  for (const Node& node : graph.nodes) {
    if (node.op == OpKind::kBatchNorm) {
      const Shape& x = graph.value(node.inputs[0]).shape;
      statistics.push_back({node.name, node.outputs[1], node.outputs[2], node.inputs[3],
                            node.inputs[4], x[1] * x[2], node.norm().momentum});
    }
  }
  return statistics;
}

// Lets whoever reads a dropout read its input.
void RemoveDropout(Graph& graph) {
  std::vector<ValueId> stand_in(graph.values.size());
  for (size_t i = 0; i < stand_in.size(); ++i) {
    stand_in[i] = static_cast<ValueId>(i);
  }
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    for (ValueId& input : node.inputs) {
      input = stand_in[static_cast<size_t>(input)];
    }
    if (node.op == OpKind::kDropout) {
      stand_in[static_cast<size_t>(node.outputs[0])] = node.inputs[0];
    } else {
      nodes.push_back(std::move(node));
    }
  }
  graph.nodes = std::move(nodes);
  if (graph.has_loss()) graph.logits = stand_in[static_cast<size_t>(graph.logits)];
}

int64_t AlignUp(int64_t offset) {
  return (offset + kReductionAlignment - 1) / kReductionAlignment * kReductionAlignment;
}

}  // namespace

StepGraph BuildTrainingStep(const Graph& model, const StepOptions& options) {
  StepGraph step;
  step.graph = model;
  step.statistics = CollectStatistics(model);
  step.max_groups = options.max_groups;
  for (const BatchStatistics& statistics : step.statistics) {
    for (const ValueId id : {statistics.mean, statistics.variance}) {
      Shape& shape = step.graph.value(id).shape;
      if (options.max_groups > 1) shape.insert(shape.begin(), options.max_groups);
    }
  }
  Autodiff(step, options.inspect || model.has_stage_input).Run();
  if (model.has_loss()) step.kept = {step.graph.loss, step.graph.correct};
  for (const BatchStatistics& statistics : step.statistics) {
    step.kept.push_back(statistics.mean);
    step.kept.push_back(statistics.variance);
  }
  if (options.inspect && model.has_loss()) step.kept.push_back(step.graph.logits);
  if (step.input_gradient != kNoValue) step.kept.push_back(step.input_gradient);
  return ApplyPasses(std::move(step), options.passes);
}

StepGraph BuildEvaluationStep(const Graph& model, const StepOptions& options) {
  StepGraph step;
  step.graph = model;
  for (Node& node : step.graph.nodes) {
    if (node.op == OpKind::kBatchNorm) {
      NormAttributes attributes = node.norm();
      attributes.batch_statistics = false;
      node.attributes = attributes;
      node.outputs.resize(1);
    } else if (node.op == OpKind::kSoftmaxCrossEntropy) {
      node.attributes = LossAttributes{};
    }
  }
  RemoveDropout(step.graph);
  if (model.has_loss()) step.kept = {step.graph.logits, step.graph.loss, step.graph.correct};
  return ApplyPasses(std::move(step), options.passes);
}

size_t ForwardNodes(const StepGraph& step) {
  const std::vector<Node>& nodes = step.graph.nodes;
  const auto end = std::find_if(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.op == OpKind::kSoftmaxCrossEntropy || node.op == OpKind::kStageOutput;
  });
  TY_CHECK(end != nodes.end());
  return static_cast<size_t>(end - nodes.begin()) + 1;
}

const ReductionEntry& ReductionLayout::entry(ValueId target) const {
  for (const ReductionEntry& candidate : entries) {
    if (candidate.target == target) {
      return candidate;
    }
  }
  CheckFailed(__FILE__, __LINE__, "value without a place in the reduction arena");
}

ReductionLayout LayOutReduction(const StepGraph& step) {
  ReductionLayout layout;
  auto append = [&layout](ReductionEntry::Kind kind, ValueId target, int64_t count) {
    const int64_t offset = layout.size;
    layout.entries.push_back({kind, target, offset, count});
    layout.size = AlignUp(offset + count);
    return offset;
  };
  for (ValueId gradient : step.parameter_gradients) {
    const ValueId parameter = step.graph.value(gradient).primal;
    append(ReductionEntry::Kind::kGradient, parameter,
           ElementCount(step.graph.value(parameter).shape));
  }
  layout.gradient_elements = layout.size;
  for (const BatchStatistics& statistics : step.statistics) {
    const int64_t channels = ElementCount(step.graph.value(statistics.running_mean).shape);
    append(ReductionEntry::Kind::kMean, statistics.running_mean, channels);
    append(ReductionEntry::Kind::kVariance, statistics.running_variance, channels);
  }
  layout.statistic_elements = layout.size - layout.gradient_elements;
  layout.loss_offset = append(ReductionEntry::Kind::kLoss, kNoValue, 1);
  layout.correct_offset = append(ReductionEntry::Kind::kCorrect, kNoValue, 1);
  return layout;
}

std::vector<int64_t> ReadyAfterNodes(const StepGraph& step, const ReductionLayout& layout) {
  std::vector<size_t> last_writer(step.graph.values.size(), 0);
  for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
    for (const ValueId output : step.graph.nodes[i].outputs) {
      if (output != kNoValue) {
        last_writer[static_cast<size_t>(output)] = i;
      }
    }
  }
  std::vector<int64_t> ready(step.graph.nodes.size(), 0);
  size_t node = 0;  // by which all entries so far are final
  for (const ValueId gradient : step.parameter_gradients) {
    node = std::max(node, last_writer[static_cast<size_t>(gradient)]);
    const ReductionEntry& entry = layout.entry(step.graph.value(gradient).primal);
    ready[node] = entry.offset + entry.count;
  }
  for (size_t i = 1; i < ready.size(); ++i) {
    ready[i] = std::max(ready[i], ready[i - 1]);
  }
  return ready;
}

}  // namespace trainyard::engine
