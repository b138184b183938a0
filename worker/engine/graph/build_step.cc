// Differentiates the model and applies the passes.
#include "worker/engine/graph/build_step.h"

#include <utility>

#include "worker/engine/graph/autodiff.h"

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

// Lets the nodes that read a dropout read its input.
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

}  // namespace trainyard::engine
