// Builds the planners of the current or the described device when they are first needed, and shares
// them among all executables.
#include "worker/engine/backend/cuda/cuda_backend.h"

#include <utility>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/arbiter/own_kernels.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/backend/cuda/dnn/plan_builder.h"
#include "worker/engine/backend/cuda/tuning/choices.h"

namespace trainyard::engine {
namespace {

// Multiplications in bf16 came with compute capability 8.0.
constexpr int kBf16Capability = 8;

// Keeps two sets of planners, since a plan that may sum in any order differs from one that may not.
class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(CudaBackendOptions options) : options_(std::move(options)) {}

  absl::string_view name() const override { return "cuda"; }

  Precision auto_precision() const override {
    const int capability = options_.device_description.empty() ? cuda::DeviceCapability()
                                                               : options_.described_capability;
    return capability >= kBf16Capability ? Precision::kBf16 : Precision::kF32;
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Graph& model,
                                                      const OptimizerSpec& optimizer,
                                                      const CompileOptions& options) override {
    if (!options_.device_description.empty()) {
      return absl::FailedPreconditionError("a described device plans, but runs nothing");
    }
    return Make(model, optimizer, options, Backing::kMemory);
  }

  absl::StatusOr<CompilePlan> Plan(const Graph& model, const OptimizerSpec& optimizer,
                                   const CompileOptions& options) override {
    TY_ASSIGN_OR_RETURN(const auto executable,
                        Make(model, optimizer, options, Backing::kAddresses));
    return CompilePlan{.memory = executable->memory_plan(),
                       .calls = executable->CallsByOp(),
                       .work = executable->StepWork(),
                       .fallbacks = executable->fallbacks()};
  }

 private:
  absl::StatusOr<std::unique_ptr<cuda::CudaExecutable>> Make(const Graph& model,
                                                             const OptimizerSpec& optimizer,
                                                             const CompileOptions& options,
                                                             Backing backing) {
    TY_RETURN_IF_ERROR(CheckCompileOptions(options));
    TY_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    TY_ASSIGN_OR_RETURN(std::shared_ptr<cuda::Planners> planners,
                        PlannersFor(options.deterministic));
    if (!options.choices.empty()) {
      TY_RETURN_IF_ERROR(TakeChoices(options.choices, *planners));
    }
    return cuda::CudaExecutable::Create(model, optimizer, options, planners, backing);
  }

  absl::StatusOr<std::shared_ptr<cuda::Planners>> PlannersFor(bool deterministic) {
    std::shared_ptr<cuda::Planners>& planners = planners_[deterministic ? 1 : 0];
    if (planners != nullptr) return planners;
    const cuda::dnn::PlannerOptions planning = {
        .autotunes = options_.autotunes,
        .build_threads = cuda::dnn::PlanBuilder::UsualThreads(),
        .deterministic = deterministic,
        .cache_folder = options_.plan_cache_folder,
        .scrutiny = options_.scrutiny,
        .arbiter = &cuda::OwnKernels()};
    auto made = std::make_shared<cuda::Planners>();
    made->fusions = options_.fusions;
    made->shared_memory = options_.shared_memory;
    if (options_.device_description.empty()) {
      made->bytes_per_microsecond = cuda::MemoryBytesPerMicrosecond();
      TY_ASSIGN_OR_RETURN(made->convolutions, cuda::dnn::Planner::ForDevice(planning));
      // The choices among products are not saved. If they were measured, a run that is resumed
      // could choose differently, so a deterministic run takes the first proposal.
      TY_ASSIGN_OR_RETURN(made->products, cuda::blas::MatmulPlanner::Create(
                                              {.autotunes = options_.autotunes && !deterministic,
                                               .scrutiny = options_.scrutiny}));
    } else {
      TY_ASSIGN_OR_RETURN(made->convolutions, cuda::dnn::Planner::ForDescription(
                                                  options_.device_description, planning));
    }
    planners = std::move(made);
    return planners;
  }

  // Makes the planners follow what another rank has measured.
  static absl::Status TakeChoices(absl::string_view text, cuda::Planners& planners) {
    TY_ASSIGN_OR_RETURN(const cuda::Choices choices, cuda::DecodeChoices(text));
    for (const std::string& plan : choices.plans) planners.convolutions->TakeChoice(plan);
    if (planners.products != nullptr) planners.products->TakeChoices(choices.products);
    return absl::OkStatus();
  }

  const CudaBackendOptions options_;
  std::shared_ptr<cuda::Planners> planners_[2];
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  if (options.device_description.empty()) {
    TY_RETURN_IF_ERROR(cuda::CheckDevice());
  }
  return std::make_unique<CudaBackend>(options);
}

}  // namespace trainyard::engine
