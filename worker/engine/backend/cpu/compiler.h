// Compiles a step graph for one number of rows.
#pragma once

#include "worker/engine/backend/cpu/lowering.h"

namespace trainyard::engine::cpu {

// Fills in `program`, which is empty. `larger` is the program for more rows, or null. Exceptions of
// oneDNN pass through.
void Compile(const StepGraph& step, const ReductionLayout& reduction, const StateMemory& state,
             const LoweringOptions& options, dnnl::engine& engine, dnnl::stream& stream,
             PackedWeights& weights, const Program* larger, Program& program);

}  // namespace trainyard::engine::cpu
