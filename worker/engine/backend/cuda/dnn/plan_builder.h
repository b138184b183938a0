// Builds plans on several threads at once, since cuDNN compiles some engines when they are built.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/backend/cuda/dnn/engines.h"
#include "worker/engine/backend/cuda/dnn/target.h"

namespace trainyard::engine::cuda::dnn {

// A builder. The class is not thread-safe, and must outlive its plans. Each thread has a handle of
// its own, because cuDNN allows the use of a handle by one thread at a time. A handle takes memory
// of the device, so that the handles of all threads but the first live only until plans are chosen.
class PlanBuilder {
 public:
  // Returns the number of processors that this process may use, which the worker divides among its
  // ranks, but at most as many as a problem has candidates.
  static int UsualThreads();

  // Uses at most `threads` threads.
  PlanBuilder(std::unique_ptr<OpenTarget> target, int threads);

  // Returns the target for everything but building.
  const Target& target() const { return targets_.front()->get(); }
  // Returns the plan of each engine, or why it cannot be built, in the same order.
  std::vector<absl::StatusOr<BuiltPlan>> Build(absl::Span<const EngineConfig* const> engines);
  // Returns the plan for target(), which outlives CloseHelpers, unlike the handles of the other
  // threads. If cuDNN cannot give the plan to another handle, it keeps its own.
  BuiltPlan Adopt(BuiltPlan plan);
  // Closes the handles of all threads but the first, except those that adopted plans keep. Plans
  // that were not adopted must be gone.
  void CloseHelpers();
  // Lets all handles go of their streams.
  void ReleaseStreams();

 private:
  // Opens targets until there is one for each of so many threads, or no more can be opened. Returns
  // how many there are.
  size_t Open(size_t threads);

  const size_t threads_max_;
  std::vector<std::unique_ptr<OpenTarget>> targets_;  // by thread
  std::vector<std::unique_ptr<OpenTarget>> kept_;     // by adopted plans
};

}  // namespace trainyard::engine::cuda::dnn
