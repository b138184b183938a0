// Holds the memory of an executable's state.
#pragma once

namespace trainyard::engine {

// Flat memory at fixed addresses, laid out as in a ReductionLayout.
struct StateMemory {
  float* parameters = nullptr;
  float* statistics = nullptr;  // running
  float* reduction = nullptr;
};

}  // namespace trainyard::engine
