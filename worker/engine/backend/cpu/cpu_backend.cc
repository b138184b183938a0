// Compiles and plans through CpuExecutable, and turns what oneDNN throws into a Status.
#include "worker/engine/backend/cpu/cpu_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cpu/cpu_executable.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine {
namespace {

class CpuBackend final : public Backend {
 public:
  absl::string_view name() const override { return "cpu"; }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Graph& model,
                                                      const OptimizerSpec& optimizer,
                                                      const CompileOptions& options) override {
    TY_RETURN_IF_ERROR(CheckCompileOptions(options));
    TY_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    TY_RETURN_IF_ERROR(cpu::CheckPrecision(options.precision));
    auto executable =
        std::make_unique<cpu::CpuExecutable>(model, optimizer, options, Backing::kMemory);
    TY_RETURN_IF_ERROR(executable->CompileLargest());
    return executable;
  }

  absl::StatusOr<CompilePlan> Plan(const Graph& model, const OptimizerSpec& optimizer,
                                   const CompileOptions& options) override {
    TY_RETURN_IF_ERROR(CheckCompileOptions(options));
    TY_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    TY_RETURN_IF_ERROR(cpu::CheckPrecision(options.precision));
    cpu::CpuExecutable executable(model, optimizer, options, Backing::kAddresses);
    TY_RETURN_IF_ERROR(executable.CompileLargest());
    return CompilePlan{.memory = executable.memory_plan(),
                       .calls = executable.CallsByOp(),
                       .stage_output = executable.stage_output()};
  }
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace trainyard::engine
