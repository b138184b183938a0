// Makes backends by name. A program knows those that are linked into it and those that it
// registers.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

// Makes `reference` (f32), `reference_f64`, `cpu`, or one that was registered. Returns NOT_FOUND
// with the known names otherwise.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name);

// Registers a backend that not every program contains. It must be called before the first
// MakeBackend, from one thread.
using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>()>;
void RegisterBackend(absl::string_view name, BackendFactory factory);

}  // namespace trainyard::engine
