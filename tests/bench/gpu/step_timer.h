// Runs training steps on a card as a trainer would, and measures their time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/bench_nets.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/backend/cuda/fusions.h"

namespace trainyard::engine::bench {

struct TimerOptions {
  std::string net = "convnet";
  int rows = 64;
  Precision precision = Precision::kBf16;
  bool captures = true;
  bool branches = true;
  bool deterministic = false;
  bool autotunes = true;
  std::string plan_cache_folder = {};  // empty: there is none
  bool verifies_plans = false;         // candidates for plans are compared
  Fusions fusions = Fusions::kWhereFaster;
};

// Returns the options of the step that is timed. They are a trainer's, but for what `options` say.
CompileOptions CompileOptionsOf(const TimerOptions& options);

// Says where the inputs of timed steps come from.
enum class Source {
  kHost,      // through pinned memory, like a trainer's
  kResident,  // they stay on the device
};

// Times steps. The class is not thread-safe.
class StepTimer {
 public:
  // Compiles the network and gives it its first parameters.
  static absl::StatusOr<std::unique_ptr<StepTimer>> Create(const TimerOptions& options);

  // Runs this many steps, of which at most two wait. Returns the seconds of one step by the wall
  // clock, from an idle device to an idle device, or INTERNAL if the loss is NaN.
  absl::StatusOr<double> Time(int64_t steps, Source source);
  // Runs enough steps for everything to be loaded, recorded and measured. Returns the number of
  // steps that take about `seconds`.
  absl::StatusOr<int64_t> WarmUp(double seconds);
  // Returns the time of each call of a step when it is enqueued by itself, and that of the update
  // as one: the median of `runs`. If the host enqueues more slowly than the device computes, the
  // times are the host's.
  absl::StatusOr<std::vector<cuda::CallTime>> Profile(int runs);

  const Graph& model() const { return model_; }
  const OptimizerSpec& optimizer() const { return optimizer_; }
  const MemoryPlan& memory_plan() const { return executable_->memory_plan(); }
  // The samples, or tokens, of one step.
  int64_t units() const { return static_cast<int64_t>(batch_.labels.size()); }
  int64_t graph_nodes() const { return executable_->StepNodes(options_.rows); }
  int64_t calls() const;
  // Returns what the calls of a step launch and move, as they were compiled.
  std::vector<CallWork> work() const { return executable_->StepWork(); }
  std::vector<Fallback> fallbacks() const { return executable_->fallbacks(); }
  // Returns how the plans of cuDNN and the measured products were chosen.
  const std::vector<cuda::PlanRecord>& plans() const { return plans_; }
  double compile_seconds() const { return compile_seconds_; }
  // The device memory that this process has taken since before it compiled.
  int64_t device_bytes() const;
  double last_loss() const { return last_loss_; }

 private:
  StepTimer(const TimerOptions& options, Graph model);
  absl::Status Compile();
  absl::Status Finish();
  cudaStream_t stream() const { return static_cast<cudaStream_t>(executable_->device_queue()); }

  const TimerOptions options_;
  const Graph model_;
  const OptimizerSpec optimizer_;
  const double lr_;
  const MadeUpBatch batch_;
  std::vector<cuda::PlanRecord> plans_;  // the backend appends to it
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executable> owner_;
  cuda::CudaExecutable* executable_ = nullptr;  // the same
  double compile_seconds_ = 0;
  int64_t free_bytes_before_ = 0;
  double last_loss_ = 0;
};

}  // namespace trainyard::engine::bench
