// Lays out the reduction arena.
#include "worker/engine/graph/step_graph.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace trainyard::engine {
namespace {

int64_t AlignOffset(int64_t offset) {
  return (offset + kReductionAlignment - 1) / kReductionAlignment * kReductionAlignment;
}

}  // namespace

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
    layout.size = AlignOffset(offset + count);
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
  size_t node = 0;  // the node after which all entries so far are final
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
