// Finds the memory to which a pointer leads. Called with the machine's mutex held.
#pragma once

#include <cstddef>

#include "tests/testing/cuda_on_cpu/machine.h"

namespace trainyard::cuda_on_cpu {

// The allocation that contains the address, with its start; null for pageable memory of the host.
const std::pair<const uintptr_t, Allocation>* FindAllocation(const Machine& machine,
                                                             const void* address);

// Returns the kind of memory of all these bytes, or false if they leave what was allocated.
bool KindOfRange(const Machine& machine, const void* address, size_t bytes, MemoryKind* kind);

}  // namespace trainyard::cuda_on_cpu
