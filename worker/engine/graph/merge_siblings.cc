// Merges 1x1 convolutions that read the same value into one. The input is then read only once,
// forward and for the gradients, and their contributions to its gradient need no sums.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_edit.h"
#include "worker/engine/graph/passes.h"

namespace trainyard::engine {
namespace {

// In the layouts of fast backends, channels come in blocks of this many.
constexpr int64_t kChannelBlock = 16;

// One of the convolutions that are merged, by node number.
struct Sibling {
  int conv = kNobody;
  int parameter_gradient = kNobody;  // kNobody in an evaluation
  int input_gradient = kNobody;      // kNobody if it is not needed
};

struct Siblings {
  std::vector<Sibling> members;  // in the order of their channels
  bool has_gradients() const { return members[0].parameter_gradient != kNobody; }
  bool has_input_gradients() const { return members[0].input_gradient != kNobody; }
};

bool IsMergeable(const Node& node) {
  const ConvAttributes& conv = node.conv();
  return conv.kernel == 1 && conv.groups == 1 && conv.padding == 0 && conv.weights == 1;
}

bool AreAlike(const Node& a, const Node& b) {
  return a.inputs[0] == b.inputs[0] && a.inputs.size() == b.inputs.size() && a.relu == b.relu &&
         a.conv().stride == b.conv().stride;
}

// Returns true if the input gradient is only read by a sum with those of others.
bool IsAdded(const StepGraph& step, const Uses& uses, const Sibling& sibling) {
  const ValueId dx = step.graph.nodes[static_cast<size_t>(sibling.input_gradient)].outputs[0];
  const int reader = uses.SoleConsumer(dx);
  return reader != kNobody && step.graph.nodes[static_cast<size_t>(reader)].op == OpKind::kAdd;
}

// Returns true if another layer has the same weights, because such gradients are made in parts.
bool SharesWeights(const StepGraph& step, const Sibling& sibling) {
  if (sibling.parameter_gradient == kNobody) {
    return false;
  }
  const Node& gradient = step.graph.nodes[static_cast<size_t>(sibling.parameter_gradient)];
  return gradient.adds || gradient.is_partial;
}

std::vector<Siblings> FindSiblings(const StepGraph& step, const Uses& uses) {
  const std::vector<Node>& nodes = step.graph.nodes;
  std::map<std::string, Sibling> by_layer;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int number = static_cast<int>(i);
    if (nodes[i].op == OpKind::kConv2d) by_layer[nodes[i].name].conv = number;
    if (nodes[i].op == OpKind::kConv2dParameterGradient) {
      by_layer[nodes[i].name].parameter_gradient = number;
    }
    if (nodes[i].op == OpKind::kConv2dInputGradient) {
      by_layer[nodes[i].name].input_gradient = number;
    }
  }
  std::vector<Siblings> found;
  std::vector<bool> taken(nodes.size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op != OpKind::kConv2d || !IsMergeable(nodes[i]) || taken[i]) {
      continue;
    }
    Siblings siblings;
    const bool has_gradients = by_layer[nodes[i].name].parameter_gradient != kNobody;
    for (const int reader : uses.consumers[static_cast<size_t>(nodes[i].inputs[0])]) {
      if (reader == kNobody) {
        continue;
      }
      const Node& node = nodes[static_cast<size_t>(reader)];
      if (node.op != OpKind::kConv2d || !IsMergeable(node) || !AreAlike(nodes[i], node)) {
        continue;
      }
      const Sibling sibling = by_layer[node.name];
      const bool fits = has_gradients == (sibling.parameter_gradient != kNobody) &&
                        (sibling.input_gradient == kNobody || IsAdded(step, uses, sibling)) &&
                        !SharesWeights(step, sibling);
      if (fits) {
        siblings.members.push_back(sibling);
        taken[static_cast<size_t>(reader)] = true;
      }
    }
    if (siblings.members.size() > 1) {
      // Convolutions that fill whole blocks come first, so that the others begin at a block.
      std::stable_partition(
          siblings.members.begin(), siblings.members.end(), [&step](const Sibling& sibling) {
            const Node& conv = step.graph.nodes[static_cast<size_t>(sibling.conv)];
            return step.graph.value(conv.outputs[0]).shape[0] % kChannelBlock == 0;
          });
      found.push_back(std::move(siblings));
    }
  }
  return found;
}

// Builds a new step graph with siblings merged.
class Merger {
 public:
  explicit Merger(StepGraph step) : step_(std::move(step)), uses_(step_) {}

  StepGraph Run() {
    const std::vector<Siblings> all = FindSiblings(step_, uses_);
    const size_t count = step_.graph.nodes.size();
    erased_.resize(count, false);
    before_.resize(count);
    stand_in_.resize(step_.graph.values.size());
    for (size_t i = 0; i < stand_in_.size(); ++i) {
      stand_in_[i] = static_cast<ValueId>(i);
    }
    for (const Siblings& siblings : all) {
      MergeForward(siblings);
      if (siblings.has_gradients()) {
        MergeBackward(siblings);
      }
    }
    DropContributions();
    std::vector<Node> nodes;
    for (size_t i = 0; i < count; ++i) {
      for (Node& node : before_[i]) {
        nodes.push_back(std::move(node));
      }
      if (!erased_[i]) {
        nodes.push_back(std::move(step_.graph.nodes[i]));
      }
    }
    for (Node& node : nodes) {
      for (ValueId& input : node.inputs) {
        input = Resolve(input);
      }
    }
    for (ValueId& kept : step_.kept) {
      kept = Resolve(kept);
    }
    if (step_.input_gradient != kNoValue) {
      step_.input_gradient = Resolve(step_.input_gradient);
    }
    step_.graph.nodes = std::move(nodes);
    return std::move(step_);
  }

 private:
  // Returns the value that replaces each one, or kNoValue if nothing is left of a sum.
  ValueId Resolve(ValueId value) const {
    const auto index = static_cast<size_t>(value);
    // Otherwise it is one of the new values.
    return index < stand_in_.size() ? stand_in_[index] : value;
  }

  // Sums lose the operands of which nothing is left.
  void DropContributions() {
    for (size_t i = 0; i < step_.graph.nodes.size(); ++i) {
      const Node& add = step_.graph.nodes[i];
      if (add.op != OpKind::kAdd) {
        continue;
      }
      const ValueId a = Resolve(add.inputs[0]);
      const ValueId b = Resolve(add.inputs[1]);
      if (a == kNoValue || b == kNoValue) {
        stand_in_[static_cast<size_t>(add.outputs[0])] = a == kNoValue ? b : a;
        erased_[i] = true;
      }
    }
  }

  Node& node(int number) { return step_.graph.nodes[static_cast<size_t>(number)]; }

  // Adds a value with the channels of all members' values, as `of` selects them.
  template <class Of>
  ValueId AddWhole(const Siblings& siblings, const std::string& name, const Of& of) {
    Value whole = step_.graph.value(of(siblings.members[0]));
    whole.name = name;
    whole.shape[0] = 0;
    for (const Sibling& sibling : siblings.members) {
      whole.shape[0] += step_.graph.value(of(sibling)).shape[0];
    }
    return step_.graph.Add(std::move(whole));
  }

  // Replaces the first member by one convolution, and a slice for the readers of each member.
  void MergeForward(const Siblings& siblings) {
    Node merged = node(siblings.members[0].conv);
    merged.inputs.resize(1);
    std::string& name = merged.name;
    name.clear();
    int first = siblings.members[0].conv;
    for (const Sibling& sibling : siblings.members) {
      const Node& conv = node(sibling.conv);
      absl::StrAppend(&name, name.empty() ? "" : "|", conv.name);
      merged.inputs.push_back(conv.inputs[1]);
      first = std::min(first, sibling.conv);
      erased_[static_cast<size_t>(sibling.conv)] = true;
    }
    const bool has_bias = node(first).inputs.size() > 2;
    for (const Sibling& sibling : siblings.members) {
      if (has_bias) {
        merged.inputs.push_back(node(sibling.conv).inputs[2]);
      }
    }
    ConvAttributes attributes = merged.conv();
    attributes.weights = static_cast<int64_t>(siblings.members.size());
    merged.attributes = attributes;
    const ValueId whole =
        AddWhole(siblings, name, [&](const Sibling& s) { return node(s.conv).outputs[0]; });
    merged.outputs = {whole};
    std::vector<Node>& place = before_[static_cast<size_t>(first)];
    place.push_back(merged);
    int64_t first_channel = 0;
    for (const Sibling& sibling : siblings.members) {
      const Node& conv = node(sibling.conv);
      place.push_back(
          {OpKind::kSlice, conv.name, {whole}, {conv.outputs[0]}, SliceAttributes{first_channel}});
      first_channel += step_.graph.value(conv.outputs[0]).shape[0];
    }
    forward_ = merged;
  }

  // Replaces the last member's gradients by the concatenated gradients of the outputs, and one node
  // for each kind of gradient.
  void MergeBackward(const Siblings& siblings) {
    const ValueId whole =
        AddWhole(siblings, absl::StrCat("grad.", forward_.name),
                 [&](const Sibling& s) { return node(s.parameter_gradient).inputs[0]; });
    step_.graph.value(whole).primal = forward_.outputs[0];
    Node concat{
        OpKind::kConcat, absl::StrCat("grad.", forward_.name), {}, {whole}, ConcatAttributes{}};
    Node parameters = node(siblings.members[0].parameter_gradient);
    parameters.name = forward_.name;
    parameters.attributes = forward_.attributes;
    parameters.inputs[0] = whole;
    parameters.outputs.clear();
    Sibling last = siblings.members[0];
    for (size_t output = 0; output + 1 < forward_.inputs.size(); ++output) {
      const size_t member = output % siblings.members.size();
      const Node& gradient = node(siblings.members[member].parameter_gradient);
      parameters.outputs.push_back(gradient.outputs[output / siblings.members.size()]);
    }
    for (const Sibling& sibling : siblings.members) {
      concat.inputs.push_back(node(sibling.parameter_gradient).inputs[0]);
      erased_[static_cast<size_t>(sibling.parameter_gradient)] = true;
      if (sibling.parameter_gradient > last.parameter_gradient) {
        last = sibling;
      }
    }
    std::vector<Node>& place = before_[static_cast<size_t>(last.parameter_gradient)];
    place.push_back(concat);
    place.push_back(parameters);
    if (siblings.has_input_gradients()) {
      MergeInputGradients(siblings, last, whole);
    }
  }

  // The last member's gradient becomes that of all. Those of the others no longer contribute to a
  // sum.
  void MergeInputGradients(const Siblings& siblings, const Sibling& last, ValueId whole) {
    for (const Sibling& sibling : siblings.members) {
      if (sibling.input_gradient == last.input_gradient) {
        continue;
      }
      stand_in_[static_cast<size_t>(node(sibling.input_gradient).outputs[0])] = kNoValue;
      erased_[static_cast<size_t>(sibling.input_gradient)] = true;
    }
    Node& merged = node(last.input_gradient);
    merged.name = forward_.name;
    merged.attributes = forward_.attributes;
    merged.inputs = {whole};
    merged.inputs.insert(
        merged.inputs.end(), forward_.inputs.begin() + 1,
        forward_.inputs.begin() + 1 + static_cast<int64_t>(siblings.members.size()));
  }

  StepGraph step_;
  const Uses uses_;  // of the original graph
  std::vector<bool> erased_;
  std::vector<std::vector<Node>> before_;  // new nodes, by the old one before which they stand
  std::vector<ValueId> stand_in_;          // by old value; kNoValue if nothing is left
  Node forward_;                           // of the present siblings
};

}  // namespace

StepGraph MergeSiblings(StepGraph step) {
  return Merger(std::move(step)).Run();
}

}  // namespace trainyard::engine
