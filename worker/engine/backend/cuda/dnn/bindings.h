// Binds the memory of a problem to the tensors of its graph.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "worker/engine/backend/cuda/dnn/problem.h"

namespace trainyard::engine::cuda::dnn {

// Memory of the device, by the id of the tensor (Slot::whole).
using Bindings = std::vector<std::pair<int64_t, void*>>;

// Returns null if nothing is bound to the tensor.
void* BoundTo(int64_t id, const Bindings& bindings);

Bindings BindingsOf(const ConvMemory& memory);
Bindings BindingsOf(const AttentionMemory& memory);

// Return the memory from which BindingsOf would make the bindings, for the graph of the problem.
ConvMemory MemoryOf(const ConvProblem& problem, const Bindings& bindings);
AttentionMemory MemoryOf(const AttentionProblem& problem, const Bindings& bindings);

}  // namespace trainyard::engine::cuda::dnn
