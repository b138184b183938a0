// Lists the backends that every program contains.
#include "worker/engine/make_backend.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/engine/backend/cpu/cpu_backend.h"
#include "worker/engine/backend/reference/reference_backend.h"

namespace trainyard::engine {

namespace {

std::map<std::string, BackendFactory>& Factories() {
  static auto* factories = new std::map<std::string, BackendFactory>{
      {"cpu", [] { return MakeCpuBackend(); }},
      {"reference", [] { return MakeReferenceBackend(Arithmetic::kF32); }},
      {"reference_f64", [] { return MakeReferenceBackend(Arithmetic::kF64); }}};
  return *factories;
}

}  // namespace

void RegisterBackend(absl::string_view name, BackendFactory factory) {
  Factories()[std::string(name)] = std::move(factory);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name) {
  const auto found = Factories().find(std::string(name));
  if (found != Factories().end()) return found->second();
  return absl::NotFoundError(
      absl::StrCat("backend '", name, "'; expected one of ",
                   absl::StrJoin(Factories(), ", ", [](std::string* out, const auto& factory) {
                     absl::StrAppend(out, factory.first);
                   })));
}

}  // namespace trainyard::engine
