// Writes a step graph in the language of Graphviz.
#include "worker/engine/graph/render_dot.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace trainyard::engine {
namespace {

constexpr int kNobody = -1;

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}});
}

bool IsBackward(const Graph& graph, const Node& node) {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&graph](ValueId output) {
    return output != kNoValue && (graph.value(output).role == Role::kGradient ||
                                  graph.value(output).role == Role::kParameterGradient);
  });
}

std::string Label(const Graph& graph, const Node& node) {
  const bool is_again =
      node.outputs[0] != kNoValue && absl::EndsWith(graph.value(node.outputs[0]).name, ".again");
  return absl::StrCat("\"", Escaped(node.name), "\\n", OpName(node.op), node.relu ? "+relu" : "",
                      is_again ? " again" : "", "\"");
}

std::string FullShape(const Value& value, int64_t rows) {
  Shape shape = value.shape;
  if (value.per_row) {
    shape.insert(shape.begin(), rows);
  }
  return ShapeString(shape);
}

class DotWriter {
 public:
  DotWriter(const StepGraph& step, int64_t rows)
      : graph_(step.graph), rows_(rows), producer_(step.graph.values.size(), kNobody) {}

  std::string Write() {
    absl::StrAppend(&text_,
                    "digraph step {\n"
                    "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", "
                    "fontsize=10];\n"
                    "  edge [fontname=\"Helvetica\", fontsize=8, color=\"#666666\"];\n"
                    "  input [shape=ellipse, fillcolor=\"#eeeeee\"];\n");
    Frame("forward", "#dce9f7", false);
    Frame("backward", "#f9e3d3", true);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Edges(static_cast<int>(i));
    }
    absl::StrAppend(&text_, "}\n");
    return std::move(text_);
  }

 private:
  void Frame(absl::string_view name, absl::string_view colour, bool is_backward) {
    absl::StrAppend(&text_, "  subgraph cluster_", name, " {\n    label=\"", name,
                    "\"; color=\"#bbbbbb\"; fontname=\"Helvetica\";\n");
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (IsBackward(graph_, node) == is_backward) {
        absl::StrAppend(&text_, "    n", i, " [label=", Label(graph_, node), ", fillcolor=\"",
                        colour, "\"];\n");
      }
    }
    absl::StrAppend(&text_, "  }\n");
  }

  // Adds edges from the values that the node reads. Edges of the graph are in the order of its
  // nodes.
  void Edges(int to) {
    const Node& node = graph_.nodes[static_cast<size_t>(to)];
    for (const ValueId id : node.inputs) {
      const Value& value = graph_.value(id);
      const int from = producer_[static_cast<size_t>(id)];
      if (from == kNobody && id != graph_.input) {
        continue;  // a parameter, a running statistic, the labels
      }
      absl::StrAppend(&text_, "  ",
                      from == kNobody ? std::string("input") : absl::StrCat("n", from), " -> n", to,
                      " [label=\"", FullShape(value, rows_), "\"];\n");
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) {
        producer_[static_cast<size_t>(id)] = to;
      }
    }
  }

  const Graph& graph_;
  const int64_t rows_;
  std::vector<int> producer_;  // by value
  std::string text_;
};

}  // namespace

std::string RenderDot(const StepGraph& step, int64_t rows) {
  return DotWriter(step, rows).Write();
}

}  // namespace trainyard::engine
