// Implements the parts of the builder that all layers share. The layers are in ops/.
#include "worker/engine/graph/graph_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::engine {
namespace {

// Larger tensors are refused, so that no size overflows later.
constexpr int64_t kMaxElements = int64_t{1} << 40;

bool IsSane(const Shape& shape) {
  double count = 1;
  for (int64_t size : shape) {
    if (size < 1) {
      return false;
    }
    count *= static_cast<double>(size);
  }
  return count <= static_cast<double>(kMaxElements);
}

}  // namespace

GraphBuilder::GraphBuilder(Shape input) {
  if ((input.size() != 1 && input.size() != 3) || !IsSane(input)) {
    Fail("input", absl::StrCat("shape ", ShapeString(input),
                               "; expected [features] or [channels, height, width], all positive"));
  }
  graph_.input = graph_.Add({"input", Role::kInput, std::move(input), true, kNoValue});
  graph_.labels = graph_.Add({"labels", Role::kLabels, {}, true, kNoValue});
}

GraphBuilder GraphBuilder::ForTokens(int64_t length, int64_t vocabulary) {
  constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
  GraphBuilder builder({length});
  if (vocabulary < 2 || vocabulary > kMaxVocabulary) {
    builder.Fail("input", absl::StrCat("a vocabulary of ", vocabulary, "; expected [2, ",
                                       kMaxVocabulary, "]"));
  }
  builder.graph_.vocabulary = vocabulary;
  return builder;
}

ValueId GraphBuilder::Fail(absl::string_view name, absl::string_view message) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat("layer '", name, "': ", message));
  }
  return kNoValue;
}

bool GraphBuilder::CheckInput(absl::string_view name, ValueId x, size_t rank) {
  if (!ok()) {
    return false;
  }
  if (x < 0 || x >= static_cast<ValueId>(graph_.values.size()) ||
      (graph_.value(x).role != Role::kActivation && graph_.value(x).role != Role::kInput)) {
    Fail(name, absl::StrCat("its input ", x, " is no value of this graph"));
    return false;
  }
  if (x == graph_.input && graph_.vocabulary > 0) {
    Fail(name, "the input is token numbers, which only an embedding reads");
    return false;
  }
  if (rank != 0 && shape(x).size() != rank) {
    Fail(name, absl::StrCat("input '", graph_.value(x).name, "' has shape ", ShapeString(shape(x)),
                            "; expected ", rank == 1 ? "[features]" : "[channels, height, width]"));
    return false;
  }
  return true;
}

bool GraphBuilder::CheckFeatures(absl::string_view name, ValueId x) {
  if (!CheckInput(name, x, 0)) {
    return false;
  }
  if (shape(x).size() > 2) {
    Fail(name, absl::StrCat("input '", graph_.value(x).name, "' has shape ", ShapeString(shape(x)),
                            "; expected [features] or [positions, features]"));
    return false;
  }
  return true;
}

bool GraphBuilder::CheckSequence(absl::string_view name, ValueId x) {
  if (!CheckInput(name, x, 0)) {
    return false;
  }
  if (shape(x).size() != 2) {
    Fail(name, absl::StrCat("input '", graph_.value(x).name, "' has shape ", ShapeString(shape(x)),
                            "; expected [positions, features]"));
    return false;
  }
  return true;
}

bool GraphBuilder::CheckNewLayer(absl::string_view name) {
  if (!ok()) {
    return false;
  }
  if (name.empty() || std::find(layers_.begin(), layers_.end(), name) != layers_.end()) {
    Fail(name, "expected a name that no other layer has");
    return false;
  }
  layers_.emplace_back(name);
  return true;
}

ValueId GraphBuilder::AddParameter(absl::string_view layer, absl::string_view suffix, Shape shape) {
  if (!IsSane(shape)) {
    return Fail(layer, absl::StrCat("its ", suffix, " ", ShapeString(shape), " is too large"));
  }
  return graph_.Add(
      {absl::StrCat(layer, ".", suffix), Role::kParameter, std::move(shape), false, kNoValue});
}

ValueId GraphBuilder::AddBuffer(absl::string_view layer, absl::string_view suffix, Shape shape) {
  return graph_.Add(
      {absl::StrCat(layer, ".", suffix), Role::kBuffer, std::move(shape), false, kNoValue});
}

std::string GraphBuilder::AutoName(absl::string_view op) {
  int number = 1;
  for (const Node& node : graph_.nodes) {
    number += OpName(node.op) == op ? 1 : 0;
  }
  return absl::StrCat(op, number);
}

ValueId GraphBuilder::AddNode(Node node, Shape output) {
  if (!ok()) {
    return kNoValue;
  }
  if (!IsSane(output)) {
    return Fail(node.name, absl::StrCat("its output ", ShapeString(output), " is too large"));
  }
  const ValueId id = graph_.Add({node.name, Role::kActivation, std::move(output), true, kNoValue});
  node.outputs.insert(node.outputs.begin(), id);
  graph_.nodes.push_back(std::move(node));
  return id;
}

absl::StatusOr<Graph> GraphBuilder::Build() && {
  if (status_.ok() && graph_.loss == kNoValue) {
    Fail("loss", "the graph ends without softmax_cross_entropy");
  }
  if (!status_.ok()) {
    return status_;
  }
  std::vector<bool> used(graph_.values.size(), false);
  for (const Node& node : graph_.nodes) {
    for (ValueId input : node.inputs) {
      used[static_cast<size_t>(input)] = true;
    }
  }
  for (const Node& node : graph_.nodes) {
    if (node.op != OpKind::kSoftmaxCrossEntropy && !used[static_cast<size_t>(node.outputs[0])]) {
      Fail(node.name, "nothing uses its output");
      return status_;
    }
  }
  if (graph_.nodes.back().op != OpKind::kSoftmaxCrossEntropy) {
    Fail(graph_.nodes.back().name, "stands after the loss; expected the loss to be last");
    return status_;
  }
  return std::move(graph_);
}

}  // namespace trainyard::engine
