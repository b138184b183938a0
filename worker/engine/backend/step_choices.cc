// Sets the options that follow from the choices and from what is fast on a backend.
#include "worker/engine/backend/step_choices.h"

namespace trainyard::engine {

CompileOptions OptionsOf(absl::string_view backend, const StepChoices& choices) {
  CompileOptions options;
  options.precision = choices.precision;
  options.deterministic = choices.deterministic;
  options.passes.recompute = choices.recompute;
  // On a GPU the pass costs time to save memory, so it is used only if memory is to be saved.
  if (backend == kCudaBackend) options.passes.recompute_norms = choices.recompute;
  return options;
}

}  // namespace trainyard::engine
