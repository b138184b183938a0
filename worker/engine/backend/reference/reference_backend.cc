// Compiles through ReferenceExecutable, in the arithmetic that the backend was made for.
#include "worker/engine/backend/reference/reference_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/reference/reference_executable.h"

namespace trainyard::engine {
namespace {

absl::Status CheckPrecision(Precision precision) {
  return precision == Precision::kF32
             ? absl::OkStatus()
             : absl::FailedPreconditionError(
                   absl::StrCat("precision ", PrecisionName(precision),
                                " needs another backend; the reference computes in f32 and f64"));
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(Arithmetic arithmetic) : arithmetic_(arithmetic) {}

  absl::string_view name() const override {
    return arithmetic_ == Arithmetic::kF32 ? "reference" : "reference_f64";
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Graph& model,
                                                      const OptimizerSpec& optimizer,
                                                      const CompileOptions& options) override {
    TY_RETURN_IF_ERROR(CheckCompileOptions(options));
    TY_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    TY_RETURN_IF_ERROR(CheckPrecision(options.precision));
    if (arithmetic_ == Arithmetic::kF32) {
      return std::make_unique<ReferenceExecutable<float>>(model, optimizer, options,
                                                          Backing::kMemory);
    }
    return std::make_unique<ReferenceExecutable<double>>(model, optimizer, options,
                                                         Backing::kMemory);
  }

  absl::StatusOr<CompilePlan> Plan(const Graph& model, const OptimizerSpec& optimizer,
                                   const CompileOptions& options) override {
    TY_RETURN_IF_ERROR(CheckCompileOptions(options));
    TY_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    TY_RETURN_IF_ERROR(CheckPrecision(options.precision));
    if (arithmetic_ == Arithmetic::kF32) {
      return ReferenceExecutable<float>(model, optimizer, options, Backing::kAddresses).Planned();
    }
    return ReferenceExecutable<double>(model, optimizer, options, Backing::kAddresses).Planned();
  }

 private:
  const Arithmetic arithmetic_;
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend(Arithmetic arithmetic) {
  return std::make_unique<ReferenceBackend>(arithmetic);
}

}  // namespace trainyard::engine
