// Compiles a step graph into a Program: decides where values lie, and which plans and kernels
// compute them.
//
// The function in lower_ops.h for its op makes a node a call, or several. Some nodes become part of
// the call before them (taken_node.h).
#pragma once

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/compile_target.h"
#include "worker/engine/backend/cuda/packed_weights.h"
#include "worker/engine/backend/cuda/program.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cuda {

// Fills `program`, which must be empty. `larger` is the program for more rows, or null. The program
// borrows everything else. Errors, such as NOT_FOUND for a plan, name the node.
absl::Status Compile(const StepGraph& step, const ReductionLayout& reduction,
                     const StepMemory& state, const PackedWeights& weights,
                     const CompileTarget& target, const Program* larger, Program& program);

}  // namespace trainyard::engine::cuda
