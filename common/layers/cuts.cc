// Counts the cuts of a stack. It arranges the layers as the engine does, as steps that read values,
// and counts the values that cross before each step.
#include "common/layers/cuts.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/check.h"

namespace trainyard::layers {
namespace {

// The steps during which a value is needed: from the step after the one that makes it to the last
// one that reads it. The sample counts as made by the first step, since no stage may be empty.
struct Life {
  size_t made = 0;
  size_t last_read = 0;
};

// The engine leaves out a dropout that drops nothing.
bool IsStep(const Kind& kind) {
  const Dropout* dropout = std::get_if<Dropout>(&kind);
  return dropout == nullptr || dropout->rate > 0;
}

bool IsFlatten(const Kind& kind) {
  const Plain* plain = std::get_if<Plain>(&kind);
  return plain != nullptr && *plain == Plain::kFlatten;
}

}  // namespace

int CountCuts(const Stack& stack, const StackPlan& plan) {
  Life sample;
  std::vector<Life> lives;            // for each value that a step makes
  std::vector<Life> weights;          // that two layers use, from the first to the last of them
  std::vector<int> value_of;          // by layer; kSample for the sample
  std::vector<bool> flattens;         // by step
  const auto read = [&](int value) {  // notes that the next step reads the value
    (value == kSample ? sample : lives[static_cast<size_t>(value)]).last_read = lives.size();
  };
  const auto step_of = [&](absl::string_view name) {
    const auto layer = std::find_if(plan.layers.begin(), plan.layers.end(),
                                    [name](const PlannedLayer& it) { return it.name == name; });
    TY_CHECK(layer != plan.layers.end());
    return static_cast<size_t>(value_of[static_cast<size_t>(layer - plan.layers.begin())]);
  };
  const auto value_at = [&](int layer) {
    return layer == kSample ? kSample : value_of[static_cast<size_t>(layer)];
  };
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    const std::vector<int>& inputs = plan.layers[i].inputs;
    if (!IsStep(stack.layers[i].kind)) {
      value_of.push_back(value_at(inputs[0]));
      continue;
    }
    for (const int input : inputs) read(value_at(input));
    if (const Linear* linear = std::get_if<Linear>(&stack.layers[i].kind);
        linear != nullptr && !linear->tied_to.empty()) {
      weights.push_back({step_of(linear->tied_to), lives.size()});
    }
    value_of.push_back(static_cast<int>(lives.size()));
    flattens.push_back(IsFlatten(stack.layers[i].kind));
    lives.push_back({lives.size(), lives.size()});
  }
  if (lives.empty()) return 0;
  read(value_of.back());  // the loss reads it
  flattens.push_back(false);

  // By step: the number of values and weights that begin to cross there, less those that end there.
  std::vector<int> begins(lives.size() + 2, 0);
  std::vector<Life> crossers = lives;
  crossers.insert(crossers.end(), weights.begin(), weights.end());
  for (const Life& life : crossers) {
    ++begins[life.made + 1];
    --begins[life.last_read + 1];
  }
  int cuts = 0;
  int crossing = 0;
  for (size_t step = 1; step <= lives.size(); ++step) {
    crossing += begins[step];
    const bool is_behind_flatten = step > 1 && flattens[step - 1] && !flattens[step];
    if (crossing == 1 && step > sample.last_read && !is_behind_flatten) ++cuts;
  }
  return cuts;
}

}  // namespace trainyard::layers
