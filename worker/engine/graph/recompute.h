// Trades time for memory: activations are computed again for the gradients instead of kept (Chen et
// al. 2016, "Training deep nets with sublinear memory cost").
#pragma once

#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// Cuts the forward nodes into segments where few bytes are alive. Values that cross a cut are kept;
// the others of a segment are computed once more, by clones of its nodes, right before the first
// gradient that reads one of them. The last segment is kept as it is, because its gradients come at
// once. If no cut lowers the largest number of bytes alive by a worthwhile share, the step is
// returned unchanged.
//
// The clones make the same bits: a dropout draws by layer and row, and the statistics of a cloned
// batch_norm are not read, so that they are folded once. It must run after the passes that fuse
// nodes (clones are fused as their originals are) and before those that look at lifetimes.
StepGraph Recompute(StepGraph step);

}  // namespace trainyard::engine
