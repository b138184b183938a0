// Chooses the cuts of a forward half, and clones the nodes between them into the backward half.
#include "worker/engine/graph/recompute.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "worker/engine/graph/memory_plan.h"

namespace trainyard::engine {
namespace {

// Cuts are judged by the bytes of this many rows, which are enough that values without rows hardly
// count.
constexpr int64_t kJudgedRows = 64;
constexpr int64_t kElementBytes = 4;
// Segments are tried at 1/2, 1/4, ... of all bytes that the gradients read.
constexpr int kHalvingsMax = 10;
// A saving of less than this share of the bytes is not worth the time.
constexpr double kWorthwhile = 0.05;
constexpr int kNowhere = -1;

bool IsForward(const Graph& graph, const Node& node) {
  return std::none_of(node.outputs.begin(), node.outputs.end(), [&graph](ValueId output) {
    return output != kNoValue && (graph.value(output).role == Role::kGradient ||
                                  graph.value(output).role == Role::kParameterGradient);
  });
}

// Describes the forward half of a step: which node makes each activation, and which reads it last
// in either half.
struct Forward {
  int nodes = 0;
  std::vector<int> producer;           // by value; kNowhere if not computed forward
  std::vector<int> last_reader;        // by value, forward nodes only
  std::vector<bool> is_read_backward;  // by value
  std::vector<bool> is_kept;           // by value; true if the step ends with it

  explicit Forward(const StepGraph& step)
      : producer(step.graph.values.size(), kNowhere),
        last_reader(step.graph.values.size(), kNowhere),
        is_read_backward(step.graph.values.size(), false),
        is_kept(step.graph.values.size(), false) {
    const std::vector<Node>& all = step.graph.nodes;
    while (nodes < static_cast<int>(all.size()) &&
           IsForward(step.graph, all[static_cast<size_t>(nodes)])) {
      ++nodes;
    }
    for (int i = 0; i < static_cast<int>(all.size()); ++i) {
      const Node& node = all[static_cast<size_t>(i)];
      for (const ValueId input : node.inputs) {
        if (i < nodes) {
          last_reader[static_cast<size_t>(input)] = i;
        } else {
          is_read_backward[static_cast<size_t>(input)] = true;
        }
      }
      for (const ValueId output : node.outputs) {
        if (i < nodes && output != kNoValue) {
          producer[static_cast<size_t>(output)] = i;
        }
      }
    }
    for (const ValueId value : step.kept) {
      is_kept[static_cast<size_t>(value)] = true;
    }
  }
};

int64_t Bytes(const Graph& graph, size_t value) {
  return graph.values[value].Elements(kJudgedRows) * kElementBytes;
}

// The cost of each cut, by the node that would begin a segment.
struct CutCosts {
  std::vector<int64_t> crossing;  // bytes that a cut there must keep
  std::vector<int64_t> saved;     // bytes for the gradients that the nodes before it make, added up

  CutCosts(const Graph& graph, const Forward& forward)
      : crossing(static_cast<size_t>(forward.nodes) + 1, 0),
        saved(static_cast<size_t>(forward.nodes) + 1, 0) {
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (forward.producer[v] == kNowhere) {
        continue;
      }
      for (int cut = forward.producer[v] + 1; cut <= forward.last_reader[v]; ++cut) {
        crossing[static_cast<size_t>(cut)] += Bytes(graph, v);
      }
      if (forward.is_read_backward[v]) {
        saved[static_cast<size_t>(forward.producer[v]) + 1] += Bytes(graph, v);
      }
    }
    for (size_t i = 1; i < saved.size(); ++i) {
      saved[i] += saved[i - 1];
    }
  }

  // Returns the cuts that keep the fewest bytes in all while no segment makes more than `budget`,
  // unless one node does. They ascend; the beginning and the end are no cuts.
  std::vector<int> Choose(int64_t budget) const {
    const size_t end = crossing.size() - 1;
    std::vector<int64_t> least(end + 1, std::numeric_limits<int64_t>::max());
    std::vector<size_t> previous(end + 1, 0);
    least[0] = 0;
    for (size_t cut = 1; cut <= end; ++cut) {
      const int64_t here = cut == end ? 0 : crossing[cut];
      for (size_t begin = cut; begin-- > 0;) {
        if (begin + 1 < cut && saved[cut] - saved[begin] > budget) {
          break;
        }
        if (least[begin] + here < least[cut]) {
          least[cut] = least[begin] + here;
          previous[cut] = begin;
        }
      }
    }
    std::vector<int> cuts;
    for (size_t cut = previous[end]; cut > 0; cut = previous[cut]) {
      cuts.push_back(static_cast<int>(cut));
    }
    std::reverse(cuts.begin(), cuts.end());
    return cuts;
  }
};

// Builds the step that recomputes the segments between `cuts`.
class Recomputation {
 public:
  Recomputation(const StepGraph& step, const Forward& forward, const std::vector<int>& cuts)
      : original_(step), forward_(forward), cuts_(cuts) {
    result_ = step;
    result_.graph.nodes.clear();
    clone_of_.assign(step.graph.values.size(), kNoValue);
    segments_done_.assign(cuts.size() + 1, false);
  }

  StepGraph Run() {
    const std::vector<Node>& nodes = original_.graph.nodes;
    result_.graph.nodes.assign(nodes.begin(), nodes.begin() + forward_.nodes);
    for (size_t i = static_cast<size_t>(forward_.nodes); i < nodes.size(); ++i) {
      Node node = nodes[i];
      for (ValueId& input : node.inputs) {
        if (IsRecomputed(input)) {
          CloneSegment(SegmentOf(input));
          input = clone_of_[static_cast<size_t>(input)];
        }
      }
      result_.graph.nodes.push_back(std::move(node));
    }
    return std::move(result_);
  }

 private:
  size_t SegmentOf(ValueId value) const {
    const int producer = forward_.producer[static_cast<size_t>(value)];
    return static_cast<size_t>(std::upper_bound(cuts_.begin(), cuts_.end(), producer) -
                               cuts_.begin());
  }

  // Returns true if the gradients read a clone of the value: it belongs to a segment before the
  // last, is not carried over a cut, and is not kept for another reason.
  bool IsRecomputed(ValueId value) const {
    const auto v = static_cast<size_t>(value);
    if (v >= forward_.producer.size() || forward_.producer[v] == kNowhere || forward_.is_kept[v]) {
      return false;
    }
    const size_t segment = SegmentOf(value);
    return segment < cuts_.size() && forward_.last_reader[v] < cuts_[segment];
  }

  // Appends clones of the segment's nodes on which a gradient depends.
  void CloneSegment(size_t segment) {
    if (segments_done_[segment]) {
      return;
    }
    segments_done_[segment] = true;
    const int begin = segment == 0 ? 0 : cuts_[segment - 1];
    const int end = cuts_[segment];
    std::vector<bool> is_needed(clone_of_.size(), false);
    std::vector<bool> is_cloned(static_cast<size_t>(end - begin), false);
    for (int i = end; i-- > begin;) {
      const Node& node = original_.graph.nodes[static_cast<size_t>(i)];
      for (const ValueId output : node.outputs) {
        const bool needed = output != kNoValue && IsRecomputed(output) &&
                            (is_needed[static_cast<size_t>(output)] ||
                             forward_.is_read_backward[static_cast<size_t>(output)]);
        is_cloned[static_cast<size_t>(i - begin)] =
            is_cloned[static_cast<size_t>(i - begin)] || needed;
      }
      for (const ValueId input : node.inputs) {
        is_needed[static_cast<size_t>(input)] =
            is_needed[static_cast<size_t>(input)] || is_cloned[static_cast<size_t>(i - begin)];
      }
    }
    for (int i = begin; i < end; ++i) {
      if (is_cloned[static_cast<size_t>(i - begin)]) {
        Clone(original_.graph.nodes[static_cast<size_t>(i)]);
      }
    }
  }

  void Clone(Node node) {
    for (ValueId& input : node.inputs) {
      if (clone_of_[static_cast<size_t>(input)] != kNoValue && IsRecomputed(input)) {
        input = clone_of_[static_cast<size_t>(input)];
      }
    }
    for (ValueId& output : node.outputs) {
      if (output == kNoValue) {
        continue;
      }
      Value value = original_.graph.value(output);
      value.name += ".again";
      ValueId& clone = clone_of_[static_cast<size_t>(output)];
      clone = result_.graph.Add(std::move(value));
      output = clone;
    }
    result_.graph.nodes.push_back(std::move(node));
  }

  const StepGraph& original_;
  const Forward& forward_;
  const std::vector<int>& cuts_;
  StepGraph result_;
  std::vector<ValueId> clone_of_;  // by value of the original
  std::vector<bool> segments_done_;
};

// Returns the largest number of bytes alive at a node.
int64_t PeakBytes(const StepGraph& step) {
  const ValueLifetimes values = ComputeLifetimes(step, kJudgedRows, kElementBytes);
  std::vector<int64_t> change(step.graph.nodes.size() + 2, 0);
  for (const Lifetime& lifetime : values.lifetimes) {
    change[static_cast<size_t>(lifetime.first)] += lifetime.bytes;
    change[static_cast<size_t>(lifetime.last) + 1] -= lifetime.bytes;
  }
  int64_t alive = 0;
  int64_t peak = 0;
  for (const int64_t by : change) {
    alive += by;
    peak = std::max(peak, alive);
  }
  return peak;
}

}  // namespace

StepGraph Recompute(StepGraph step) {
  const Forward forward(step);
  if (forward.nodes == static_cast<int>(step.graph.nodes.size())) {
    return step;  // there are no gradients
  }
  const CutCosts costs(step.graph, forward);
  auto least = static_cast<int64_t>((1 - kWorthwhile) * static_cast<double>(PeakBytes(step)));
  std::optional<StepGraph> best;
  int64_t budget = costs.saved.back();
  for (int halving = 0; halving < kHalvingsMax && budget > 0; ++halving) {
    budget /= 2;
    const std::vector<int> cuts = costs.Choose(budget);
    StepGraph candidate = Recomputation(step, forward, cuts).Run();
    const int64_t peak = PeakBytes(candidate);
    if (peak < least) {
      least = peak;
      best = std::move(candidate);
    }
  }
  return best.has_value() ? *std::move(best) : std::move(step);
}

}  // namespace trainyard::engine
