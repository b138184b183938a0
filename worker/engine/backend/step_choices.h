// Says which kernels compute a step. The trainer and the benchmarks take their options from here,
// so that the step which is measured is the one which trains.
#pragma once

#include "absl/strings/string_view.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

// The name of the backend whose devices have memory of their own.
inline constexpr absl::string_view kCudaBackend = "cuda";

// The choices of a user about the arithmetic of a step.
struct StepChoices {
  Precision precision = Precision::kF32;
  bool deterministic = false;  // as CompileOptions::deterministic; it may cost time
  bool recompute = false;      // as PassOptions::recompute; it costs time and saves memory
};

// Returns the options of a step on the backend of this name. Those that depend on the rows, on the
// ranks and on the host are left to the caller.
CompileOptions OptionsOf(absl::string_view backend, const StepChoices& choices);

}  // namespace trainyard::engine
