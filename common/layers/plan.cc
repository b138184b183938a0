// Resolves names and infers shapes in one pass, in the order of the layers. After a mistake it
// continues with what is still known, so that all mistakes are reported at once.
#include "common/layers/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::layers {
namespace {

// A longer list of mistakes helps nobody, and a hostile spec must not take long.
constexpr size_t kMistakesMax = 40;
// For an unknown name, the most similar name among this many layers before the reader is suggested.
constexpr size_t kCandidatesMax = 200;
constexpr int64_t kMaxInput = int64_t{1} << 24;

bool ReadsSeveral(const Kind& kind) {
  const Plain* plain = std::get_if<Plain>(&kind);
  return plain != nullptr && (*plain == Plain::kAdd || *plain == Plain::kConcat);
}

class Planner {
 public:
  Planner(const Stack& stack, absl::string_view path, std::vector<FieldViolation>& violations)
      : stack_(stack), path_(path), violations_(violations) {}

  StackPlan Plan() && {
    CheckInput();
    NameLayers();
    for (size_t i = 0; i < stack_.layers.size() && !is_full(); ++i) PlanLayer(i);
    CheckReaders();
    CheckLast();
    return std::move(plan_);
  }

 private:
  bool is_full() const { return count_ >= kMistakesMax; }

  void Add(const std::string& path, std::string description) {
    if (is_full()) return;
    ++count_;
    violations_.push_back({path, std::move(description)});
  }
  std::string PathOf(size_t layer) const { return absl::StrCat(path_, ".stack[", layer, "]"); }
  // Adds a violation whose text is "conv2d 'conv1' MISTAKE".
  void AddAt(size_t layer, absl::string_view suffix, absl::string_view mistake) {
    Add(absl::StrCat(PathOf(layer), suffix), absl::StrCat(KindName(stack_.layers[layer].kind), " '",
                                                          plan_.layers[layer].name, "' ", mistake));
  }

  void CheckInput() {
    sample_ = {std::string(kSampleName), stack_.input, stack_.vocabulary > 0};
    const size_t expected = sample_.is_tokens ? 1 : 3;
    const bool has_sizes = std::all_of(stack_.input.begin(), stack_.input.end(),
                                       [](int64_t size) { return size >= 1 && size <= kMaxInput; });
    if (stack_.vocabulary == 1) {
      Add(absl::StrCat(path_, ".vocabulary"),
          "1 is not accepted; expected 2 or more, or 0 for images");
    }
    if (has_sizes && stack_.input.size() != expected) {
      Add(absl::StrCat(path_, ".input"),
          absl::StrCat(ShapeText(stack_.input), " has ", stack_.input.size(), " numbers; expected ",
                       sample_.is_tokens ? "the number of tokens alone, as `vocabulary` is given"
                                         : "channels, height, width, or `vocabulary` beside it"));
    }
    const bool is_known = has_sizes && stack_.input.size() == expected && !IsTooLarge(stack_.input);
    if (!is_known) sample_.shape.clear();
  }

  void NameLayers() {
    std::map<absl::string_view, int> numbers;
    for (size_t i = 0; i < stack_.layers.size(); ++i) {
      const Layer& layer = stack_.layers[i];
      const absl::string_view kind = KindName(layer.kind);
      const int number = ++numbers[kind];
      const bool is_named = !layer.name.empty();
      plan_.layers.push_back({is_named ? layer.name : absl::StrCat(kind, number), {}, {}});
      const std::string& name = plan_.layers[i].name;
      const auto [known, is_new] = indices_.emplace(name, i);
      if (name == kSampleName) {
        AddAt(i, ".name", "has the name of the sample; use another");
      } else if (!is_new && is_named) {
        AddAt(i, ".name", absl::StrCat("has the name of stack[", known->second, "]; use another"));
      } else if (!is_new) {
        AddAt(i, "",
              absl::StrCat("would be called as stack[", known->second, "] is; give it a `name`"));
      }
    }
    readers_.assign(stack_.layers.size(), 0);
  }

  // Returns the index of the layer that `from` names. Adds a mistake and returns nothing if there
  // is no such layer.
  std::optional<int> Find(size_t layer, size_t at, const std::string& name) {
    if (name == kSampleName) return kSample;
    const std::string suffix = absl::StrCat(".from[", at, "]");
    const auto found = indices_.find(name);
    if (found != indices_.end() && found->second < layer) return static_cast<int>(found->second);
    if (found != indices_.end() && found->second == layer) {
      AddAt(layer, suffix, "reads itself; expected a layer before it, or input");
    } else if (found != indices_.end()) {
      AddAt(layer, suffix,
            absl::StrCat("reads '", name, "', stack[", found->second,
                         "], which comes after it; expected a layer before it: move one of them"));
    } else {
      std::vector<std::string> candidates = {std::string(kSampleName)};
      for (size_t i = layer - std::min(layer, kCandidatesMax); i < layer; ++i) {
        candidates.push_back(plan_.layers[i].name);
      }
      const std::string nearest = NearestWord(name, candidates);
      AddAt(layer, suffix,
            absl::StrCat("reads '", name, "', and no layer before it has that name",
                         nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
    }
    return std::nullopt;
  }

  // Returns false if it is unknown what the layer reads.
  bool FindInputs(size_t index) {
    const Layer& layer = stack_.layers[index];
    std::vector<int>& inputs = plan_.layers[index].inputs;
    const bool several = ReadsSeveral(layer.kind);
    if (layer.from.empty() && several) {
      AddAt(index, "", "reads several layers; name them, such as from: [input, conv2d1]");
      return false;
    }
    if (layer.from.empty()) inputs = {index == 0 ? kSample : static_cast<int>(index) - 1};
    for (size_t i = 0; i < layer.from.size(); ++i) {
      const std::optional<int> found = Find(index, i, layer.from[i]);
      if (found.has_value()) inputs.push_back(*found);
    }
    for (const int input : inputs) {
      if (input != kSample) ++readers_[static_cast<size_t>(input)];
    }
    if (!layer.from.empty() && several != (layer.from.size() > 1)) {
      AddAt(index, ".from",
            several ? "reads 1 layer; expected two or more"
                    : absl::StrCat("reads ", layer.from.size(),
                                   " layers; only add and concat read several: put one before it"));
      return false;
    }
    return layer.from.empty() || inputs.size() == layer.from.size();
  }

  void PlanLayer(size_t index) {
    PlannedLayer& planned = plan_.layers[index];
    if (!FindInputs(index)) {
      has_unknown_reader_ = true;
      return;
    }
    std::vector<Source> sources;
    for (const int input : planned.inputs) {
      if (input == kSample) {
        sources.push_back(sample_);
      } else {
        const PlannedLayer& source = plan_.layers[static_cast<size_t>(input)];
        sources.push_back({source.name, source.output});
      }
    }
    Shaped shaped = ShapeOf(stack_.layers[index].kind, sources, stack_.vocabulary);
    if (IsTooLarge(shaped.output)) {
      shaped.mistake = absl::StrCat("gives ", ShapeText(shaped.output), ", which is too large");
      shaped.output.clear();
    }
    planned.output = std::move(shaped.output);
    if (!shaped.mistake.empty()) AddAt(index, "", shaped.mistake);
  }

  void CheckReaders() {
    // Another layer may be the one that was meant by a name that does not exist.
    if (has_unknown_reader_) return;
    for (size_t i = 0; i + 1 < readers_.size() && !is_full(); ++i) {
      if (readers_[i] > 0) continue;
      AddAt(i, "", "is read by no layer; name it in the `from` of a later one, or leave it out");
    }
  }

  void CheckLast() {
    if (stack_.layers.empty() || is_full()) return;
    const bool has_weights =
        std::any_of(stack_.layers.begin(), stack_.layers.end(), [](const Layer& layer) {
          // A layer without a kind may or may not have weights.
          return HasWeights(layer.kind) || std::holds_alternative<std::monostate>(layer.kind);
        });
    if (!has_weights) {
      Add(absl::StrCat(path_, ".stack"),
          "has no layer with weights, and so nothing to train; add conv2d or linear");
    }
    const size_t last = stack_.layers.size() - 1;
    const Shape& output = plan_.layers[last].output;
    if (output.empty()) return;
    const size_t rank = sample_.is_tokens ? 2 : 1;
    if (output.size() != rank) {
      AddAt(last, "",
            absl::StrCat("ends the stack with ", ShapeText(output), ", ", Nature(output),
                         "; expected ",
                         sample_.is_tokens ? "[positions, vocabulary], as `linear` gives it"
                                           : "[classes], as `flatten` and `linear` give it"));
    } else if (output.back() < 2) {
      AddAt(last, "", "ends the stack with 1 class; expected 2 or more");
    } else if (sample_.is_tokens && !sample_.shape.empty() && output[0] != sample_.shape[0]) {
      AddAt(last, "",
            absl::StrCat("ends the stack with ", output[0], " positions; expected ",
                         sample_.shape[0], ", one for each token"));
    } else if (output.back() < stack_.vocabulary) {
      AddAt(last, "",
            absl::StrCat("ends the stack with ", output.back(), " classes; expected ",
                         stack_.vocabulary, ", one for each token of the vocabulary"));
    } else {
      plan_.classes = output.back();
    }
  }

  const Stack& stack_;
  const std::string path_;
  std::vector<FieldViolation>& violations_;
  size_t count_ = 0;
  StackPlan plan_;
  Source sample_;
  absl::flat_hash_map<std::string, size_t> indices_;
  std::vector<int> readers_;  // by layer
  bool has_unknown_reader_ = false;
};

}  // namespace

StackPlan PlanStack(const Stack& stack, absl::string_view path,
                    std::vector<FieldViolation>& violations) {
  return Planner(stack, path, violations).Plan();
}

}  // namespace trainyard::layers
