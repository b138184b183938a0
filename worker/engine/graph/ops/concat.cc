// concat: (x_i [C_i, H, W], ...) -> y [sum C_i, H, W], or of features [F_i].
//   gradient  slice (dy) -> dx_i, some of the channels; one node for each input
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

// Only parts that are not written in place are copied.
double ConcatBytes(const Graph& graph, const Node& node, int64_t rows) {
  const std::vector<bool>& placed = node.concat().placed;
  double bytes = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& part = graph.value(node.inputs[i]);
    const bool is_placed = !placed.empty() && placed[i];
    bytes += is_placed ? 0
                       : 2 * static_cast<double>(BytesOf(part.element, part.Elements(rows),
                                                         int64_t{sizeof(float)}));
  }
  return bytes;
}

double SliceBytes(const Graph& graph, const Node& node, int64_t rows) {
  return node.slice().is_view ? 0 : BytesOfAllTensors(graph, node, rows);
}

void Gradient(Autodiff& autodiff, const Node& node) {
  // If an input comes in several times, each place contributes.
  int64_t first_channel = 0;
  for (const ValueId x : node.inputs) {
    if (autodiff.Wants(x)) {
      const ValueId dx = autodiff.NewGradient(x);
      autodiff.Emit({OpKind::kSlice,
                     node.name,
                     {autodiff.GradientOf(node.outputs[0])},
                     {dx},
                     SliceAttributes{first_channel}});
      autodiff.Contribute(x, dx);
    }
    first_channel += autodiff.ShapeOf(x)[0];
  }
}

}  // namespace

const OpDefinition kConcatDefinition = {
    .flops = Nothing, .gradient = Gradient, .bytes = ConcatBytes};
const OpDefinition kSliceDefinition = {.flops = Nothing, .bytes = SliceBytes};

ValueId GraphBuilder::Concat(const std::vector<ValueId>& parts) {
  const std::string name = AutoName("concat");
  if (!ok()) {
    return kNoValue;
  }
  if (parts.size() < 2) {
    return Fail(name, absl::StrCat(parts.size(), " inputs; expected at least 2"));
  }
  Shape total;
  for (const ValueId part : parts) {
    if (!CheckInput(name, part, 0)) {
      return kNoValue;
    }
    const Shape& added = shape(part);
    if (total.empty()) {
      total = added;
      continue;
    }
    const bool fits = added.size() == total.size() && (total.size() == 1 || total.size() == 3) &&
                      std::equal(added.begin() + 1, added.end(), total.begin() + 1);
    if (!fits) {
      return Fail(name, absl::StrCat("cannot append ", ShapeString(added), " ('",
                                     graph_.value(part).name, "') to ", ShapeString(total),
                                     "; expected equal height and width, or features"));
    }
    total[0] += added[0];
  }
  return AddNode({OpKind::kConcat, name, parts, {}, ConcatAttributes{}}, total);
}

}  // namespace trainyard::engine
