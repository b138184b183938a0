// Backends by name. A program knows those that are linked into it and those that it registers.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

// `reference` (f32), `reference_f64`, `cpu`, or one that was registered; NOT_FOUND with the known
// names otherwise.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name);

// Makes a backend known that not every program holds. Call it before the first MakeBackend, from
// one thread.
using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>()>;
void RegisterBackend(absl::string_view name, BackendFactory factory);

}  // namespace trainyard::engine
