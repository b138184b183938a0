// Runs and profiles steps of a compiled network.
#include "tests/bench/gpu/step_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "tests/bench/gpu/step_report.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/step_choices.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine::bench {
namespace {

using cuda::CudaStatus;

// The first step loads code, the second runs as one call, and the others are recorded, one for each
// slot of Staging.
constexpr int64_t kWarmUpSteps = 5;
constexpr int64_t kStepsMax = 100000;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::StatusOr<int64_t> FreeBytes() {
  size_t free_bytes = 0, all_bytes = 0;
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &all_bytes), "asking for the device's memory"));
  return static_cast<int64_t>(free_bytes);
}

double Middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Small enough for the same batch to stay finite however often it is repeated.
double RateOf(const Graph& model) {
  return model.vocabulary > 0 ? 1e-4 : 1e-3;
}

}  // namespace

CompileOptions CompileOptionsOf(const TimerOptions& options) {
  CompileOptions compile = OptionsOf(
      kCudaBackend, {.precision = options.precision, .deterministic = options.deterministic});
  compile.max_rows = options.rows;
  if (!options.captures) compile.captures = false;
  if (!options.branches) compile.branches = false;
  return compile;
}

StepTimer::StepTimer(const TimerOptions& options, Graph model)
    : options_(options),
      model_(std::move(model)),
      optimizer_(BenchOptimizer(model_)),
      lr_(RateOf(model_)),
      batch_(MakeUpBatch(model_, options.rows)) {}

absl::StatusOr<std::unique_ptr<StepTimer>> StepTimer::Create(const TimerOptions& options) {
  TY_ASSIGN_OR_RETURN(Graph model, BuildBenchNet(options.net));
  auto timer = std::unique_ptr<StepTimer>(new StepTimer(options, std::move(model)));
  TY_RETURN_IF_ERROR(timer->Compile());
  return timer;
}

absl::Status StepTimer::Compile() {
  const auto start = std::chrono::steady_clock::now();
  TY_ASSIGN_OR_RETURN(free_bytes_before_, FreeBytes());
  TY_ASSIGN_OR_RETURN(
      backend_,
      MakeCudaBackend({.plan_cache_folder = options_.plan_cache_folder,
                       .autotunes = options_.autotunes,
                       .scrutiny = {.verifies = options_.verifies_plans, .records = &plans_},
                       .fusions = options_.fusions}));
  TY_ASSIGN_OR_RETURN(owner_, backend_->Compile(model_, optimizer_, CompileOptionsOf(options_)));
  executable_ = dynamic_cast<cuda::CudaExecutable*>(owner_.get());
  TY_CHECK(executable_ != nullptr);
  TY_RETURN_IF_ERROR(InitializeParameters(1, *executable_));
  compile_seconds_ = SecondsSince(start);
  return absl::OkStatus();
}

absl::Status StepTimer::Finish() {
  TY_ASSIGN_OR_RETURN(const StepMetrics metrics, executable_->FinishUpdate());
  last_loss_ = metrics.loss;
  if (std::isfinite(last_loss_)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the loss of ", options_.net, " is ", last_loss_));
}

absl::StatusOr<double> StepTimer::Time(int64_t steps, Source source) {
  const Batch batch = batch_.batch();
  TY_RETURN_IF_ERROR(executable_->Synchronize());
  const auto start = std::chrono::steady_clock::now();
  int started = 0;
  for (int64_t step = 0; step < steps; ++step) {
    if (started == executable_->max_updates_in_flight()) {
      TY_RETURN_IF_ERROR(Finish());
      --started;
    }
    TY_RETURN_IF_ERROR(source == Source::kHost ? executable_->StartStep(batch, lr_)
                                               : executable_->RepeatStep());
    ++started;
  }
  for (; started > 0; --started) TY_RETURN_IF_ERROR(Finish());
  TY_RETURN_IF_ERROR(executable_->Synchronize());
  return SecondsSince(start) / static_cast<double>(steps);
}

absl::StatusOr<int64_t> StepTimer::WarmUp(double seconds) {
  TY_RETURN_IF_ERROR(Time(kWarmUpSteps, Source::kHost).status());
  TY_ASSIGN_OR_RETURN(const double once, Time(2, Source::kResident));
  return std::clamp<int64_t>(static_cast<int64_t>(seconds / once), 2, kStepsMax);
}

absl::StatusOr<std::vector<cuda::CallTime>> StepTimer::Profile(int runs) {
  TY_ASSIGN_OR_RETURN(const cuda::Event begin, cuda::CreateEvent(/*has_time=*/true));
  TY_ASSIGN_OR_RETURN(const cuda::Event end, cuda::CreateEvent(/*has_time=*/true));
  std::vector<std::vector<cuda::CallTime>> all;
  for (int run = 0; run < runs; ++run) {
    TY_ASSIGN_OR_RETURN(std::vector<cuda::CallTime> times, executable_->Profile(batch_.batch()));
    TY_RETURN_IF_ERROR(executable_->Synchronize());
    TY_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin.get(), stream()), "marking an update"));
    TY_RETURN_IF_ERROR(executable_->StartUpdate(lr_));
    TY_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end.get(), stream()), "marking an update"));
    TY_RETURN_IF_ERROR(Finish());
    TY_RETURN_IF_ERROR(executable_->Synchronize());
    float milliseconds = 0;
    TY_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()),
                                  "timing an update"));
    times.push_back({.name = kUpdateCall,
                     .op = kUpdateCall,
                     .seconds = 1e-3 * static_cast<double>(milliseconds)});
    all.push_back(std::move(times));
  }
  std::vector<cuda::CallTime> middle = all.front();
  for (size_t i = 0; i < middle.size(); ++i) {
    std::vector<double> seconds;
    seconds.reserve(all.size());
    for (const std::vector<cuda::CallTime>& times : all) seconds.push_back(times[i].seconds);
    middle[i].seconds = Middle(std::move(seconds));
  }
  return middle;
}

int64_t StepTimer::calls() const {
  int64_t calls = 0;
  for (const auto& [op, count] : executable_->CallsByOp()) calls += count;
  return calls;
}

int64_t StepTimer::device_bytes() const {
  const absl::StatusOr<int64_t> free_bytes = FreeBytes();
  return free_bytes.ok() ? free_bytes_before_ - *free_bytes : 0;
}

}  // namespace trainyard::engine::bench
