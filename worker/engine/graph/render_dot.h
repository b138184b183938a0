// A graph as a picture.
#pragma once

#include <string>

#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// A digraph in Graphviz's language, for `dot -Tsvg`: a box a node, forward and backward in a frame
// each, an edge a value with its shape for `rows` rows. Parameters are not drawn.
std::string RenderDot(const StepGraph& step, int64_t rows);

}  // namespace trainyard::engine
