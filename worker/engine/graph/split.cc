// Cuts the graph of a model into the stages of a pipeline.
#include "worker/engine/graph/split.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::engine {
namespace {

// The values on both sides of a cut.
struct Crossing {
  std::set<ValueId> values;
  std::set<ValueId> parameters;

  bool is_possible() const { return values.size() == 1 && parameters.empty(); }
};

// Returns the node before which a cut is really made: a flatten moves no data, and goes with the
// layer after it, so that the value at the cut keeps its shape.
size_t Position(const Graph& model, size_t node) {
  const bool follows = node > 1 && model.nodes[node - 1].op == OpKind::kFlatten;
  return follows && model.nodes[node].op != OpKind::kFlatten ? node - 1 : node;
}

// The nodes that read a value first and last.
struct Reach {
  size_t first = 0;
  size_t last = 0;
};

// Finds what crosses each cut. The cut before node i separates nodes [0, i) from the others.
std::vector<Crossing> FindCrossings(const Graph& model) {
  std::map<ValueId, Reach> reaches;  // from the node that makes a value, or reads a parameter first
  reaches[model.input] = {};
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    const Node& node = model.nodes[i];
    for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) {
        if (id != kNoValue) reaches.insert({id, {i, i}}).first->second.last = i;
      }
    }
  }
  std::vector<Crossing> crossings(model.nodes.size());
  for (const auto& [id, reach] : reaches) {
    for (size_t cut = reach.first + 1; cut <= reach.last; ++cut) {
      const Role role = model.value(id).role;
      if (role == Role::kParameter || role == Role::kBuffer) {
        crossings[cut].parameters.insert(id);
      } else if (role != Role::kLabels) {
        crossings[cut].values.insert(id);
      }
    }
  }
  // Here the input itself would cross, and no value. A stage must have some work.
  for (Crossing& crossing : crossings) {
    if (crossing.values.contains(model.input) && crossing.values.size() == 1) {
      crossing.values.clear();
    }
  }
  return crossings;
}

std::string Quoted(absl::Span<const std::string> names) {
  return absl::StrJoin(names, " or ", [](std::string* out, const std::string& name) {
    absl::StrAppend(out, "'", name, "'");
  });
}

// Lists the possible cuts on both sides of a node, for people.
std::string NearestCuts(absl::Span<const CutPoint> possible, size_t node) {
  if (possible.empty()) return "this model cannot be cut at all";
  std::vector<std::string> names;
  const auto after =
      std::find_if(possible.begin(), possible.end(),
                   [node](const CutPoint& candidate) { return candidate.node > node; });
  if (after != possible.begin()) names.push_back(std::prev(after)->layer);
  if (after != possible.end()) names.push_back(after->layer);
  return absl::StrCat("the nearest possible cut is ", Quoted(names));
}

absl::Status Impossible(absl::string_view name, const Graph& model, const Crossing& crossing,
                        size_t node, absl::Span<const CutPoint> possible) {
  const std::string layer = absl::StrCat("layer '", name, "': ");
  if (node == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(layer, "the first stage begins with it; ", NearestCuts(possible, node)));
  }
  if (!crossing.parameters.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(layer, "the layers before and after it share the parameter '",
                     model.value(*crossing.parameters.begin()).name,
                     "', which one stage must hold; ", NearestCuts(possible, node)));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      layer, crossing.values.size(), " values cross before it, and a stage takes exactly one; ",
      NearestCuts(possible, node)));
}

absl::Status Unknown(absl::string_view layer, absl::Span<const CutPoint> possible) {
  constexpr size_t kNamesMax = 12;
  std::vector<std::string> names;
  for (const CutPoint& point : possible.first(std::min(possible.size(), kNamesMax))) {
    names.push_back(point.layer);
  }
  return absl::InvalidArgumentError(absl::StrCat("no layer '", layer, "'; stages can begin with ",
                                                 Quoted(names),
                                                 possible.size() > kNamesMax ? ", ..." : ""));
}

// Copies nodes [begin, end) and the values that they use.
class StageBuilder {
 public:
  explicit StageBuilder(const Graph& model)
      : model_(model), id_of_(model.values.size(), kNoValue) {}

  Graph Build(size_t begin, size_t end, ValueId entering, ValueId leaving) {
    // The values keep the model's order, since states are listed in it.
    std::vector<bool> used(model_.values.size(), false);
    used[static_cast<size_t>(entering)] = true;
    used[static_cast<size_t>(model_.labels)] = true;
    for (size_t i = begin; i < end; ++i) {
      for (const ValueId id : model_.nodes[i].inputs) used[static_cast<size_t>(id)] = true;
      for (const ValueId id : model_.nodes[i].outputs) {
        if (id != kNoValue) used[static_cast<size_t>(id)] = true;
      }
    }
    for (size_t v = 0; v < used.size(); ++v) {
      if (used[v]) id_of_[v] = stage_.Add(model_.values[v]);
    }
    for (size_t i = begin; i < end; ++i) {
      Node node = model_.nodes[i];
      for (ValueId& id : node.inputs) id = At(id);
      for (ValueId& id : node.outputs) id = At(id);
      stage_.nodes.push_back(std::move(node));
    }
    stage_.input = At(entering);
    stage_.labels = At(model_.labels);
    stage_.has_stage_input = entering != model_.input;
    stage_.value(stage_.input).role = Role::kInput;
    stage_.vocabulary = stage_.has_stage_input ? 0 : model_.vocabulary;
    if (leaving == kNoValue) {
      stage_.logits = At(model_.logits);
      stage_.loss = At(model_.loss);
      stage_.correct = At(model_.correct);
    } else {
      EndWith(At(leaving));
    }
    return std::move(stage_);
  }

 private:
  ValueId At(ValueId id) const { return id == kNoValue ? id : id_of_[static_cast<size_t>(id)]; }

  void EndWith(ValueId leaving) {
    Value output = stage_.value(leaving);
    output.name = "stage_output";
    output.role = Role::kActivation;
    stage_.stage_output = stage_.Add(std::move(output));
    stage_.nodes.push_back(
        {OpKind::kStageOutput, "stage_output", {leaving}, {stage_.stage_output}, {}});
  }

  const Graph& model_;
  Graph stage_;
  std::vector<ValueId> id_of_;  // by value of the model
};

}  // namespace

std::vector<CutPoint> PossibleCuts(const Graph& model) {
  const std::vector<Crossing> crossings = FindCrossings(model);
  std::vector<CutPoint> cuts;
  for (size_t i = 1; i < crossings.size(); ++i) {
    const size_t position = Position(model, i);
    const bool is_next_too =
        i + 1 < crossings.size() && Position(model, i + 1) == i && crossings[i].is_possible();
    if (crossings[position].is_possible() && !is_next_too) {
      cuts.push_back({position, model.nodes[i].name, *crossings[position].values.begin()});
    }
  }
  return cuts;
}

absl::StatusOr<std::vector<Graph>> SplitModel(const Graph& model,
                                              absl::Span<const std::string> cuts) {
  const std::vector<CutPoint> possible = PossibleCuts(model);
  std::vector<CutPoint> chosen;
  for (const std::string& layer : cuts) {
    const auto node = std::find_if(model.nodes.begin(), model.nodes.end(),
                                   [&layer](const Node& each) { return each.name == layer; });
    if (node == model.nodes.end()) return Unknown(layer, possible);
    const size_t index = Position(model, static_cast<size_t>(node - model.nodes.begin()));
    const auto point = std::find_if(possible.begin(), possible.end(),
                                    [index](const CutPoint& each) { return each.node == index; });
    if (point == possible.end()) {
      return Impossible(layer, model, FindCrossings(model)[index], index, possible);
    }
    if (!chosen.empty() && point->node <= chosen.back().node) {
      return absl::InvalidArgumentError(absl::StrCat("layer '", layer, "' does not come after '",
                                                     chosen.back().layer,
                                                     "'; expected cuts in the order of the model"));
    }
    chosen.push_back(*point);
  }
  std::vector<Graph> stages;
  size_t begin = 0;
  ValueId entering = model.input;
  for (const CutPoint& point : chosen) {
    stages.push_back(StageBuilder(model).Build(begin, point.node, entering, point.value));
    begin = point.node;
    entering = point.value;
  }
  stages.push_back(StageBuilder(model).Build(begin, model.nodes.size(), entering, kNoValue));
  return stages;
}

}  // namespace trainyard::engine
