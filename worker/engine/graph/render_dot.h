// Draws a graph as a picture.
#pragma once

#include <string>

#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// Returns a digraph in Graphviz's language, for `dot -Tsvg`. Each node is a box, forward and
// backward have a frame each, and each value is an edge with its shape for `rows` rows. Parameters
// are not drawn.
std::string RenderDot(const StepGraph& step, int64_t rows);

}  // namespace trainyard::engine
