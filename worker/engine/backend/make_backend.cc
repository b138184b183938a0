#include <memory>

#include "absl/strings/str_cat.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cpu/cpu_backend.h"
#include "worker/engine/backend/reference/reference_backend.h"

namespace trainyard::engine {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name) {
  if (name == "reference") {
    return MakeReferenceBackend(Arithmetic::kF32);
  }
  if (name == "reference_f64") {
    return MakeReferenceBackend(Arithmetic::kF64);
  }
  if (name == "cpu") {
    return MakeCpuBackend();
  }
  return absl::NotFoundError(
      absl::StrCat("backend '", name, "'; expected reference, reference_f64 or cpu"));
}

}  // namespace trainyard::engine
