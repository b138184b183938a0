// cuDNN's graph API, emulated by the CPU, for tests where there is no GPU. The library defines the
// symbols of cudnn_graph.h that the backend calls (handles and cudnnBackend...), so the backend's
// host code runs unchanged. Descriptors are checked as cuDNN checks them, and more strictly where
// cuDNN lets mistakes pass. Executions are queued on the emulated stream of the handle.
//
// Every graph of the known operations can be run, in f32 arithmetic, by these engines:
//
//   index | workspace | purpose
//     0   |    none   | always works
//     1   |   1 MiB   | always works; overwrites its workspace
//     2   | 300 MiB   | needs more than a planner should give
//     3   |    none   | nondeterministic: results change in the last bit from run to run
//     4   |    none   | is offered by the heuristics, but no plan can be made of it
//
// The gradient of attention takes more with every engine if it is in the form that is
// deterministic, as cuDNN's does: the gradients of all scores, in 16 bits.
//
// Heuristic modes A and INSTANT offer 4 2 3 1 0 in this order, B offers 3 1, FALLBACK offers only
// 0. As in cuDNN, a graph that finalizes statistics is offered only by FALLBACK.
//
// A plan takes no time, unless CUDNN_ON_CPU_PLAN_SECONDS in the environment says how long each
// takes that is not made from a text. cuDNN needs 0.1 to 1.5 s for engines that it compiles.
//
// The functions below are for tests. They may be called from any thread, and hold for the process.
#pragma once

#include <cstdint>
#include <functional>

namespace trainyard::cuda_on_cpu {

// A convolution of an operation graph.
struct ConvolutionShape {
  enum class Kind { kForward, kInputGradient, kWeightGradient };
  Kind kind = Kind::kForward;
  int64_t rows = 0;
  int64_t channels = 0, height = 0, width = 0;              // of x or its gradient
  int64_t out_channels = 0, out_height = 0, out_width = 0;  // of y or its gradient
  int64_t kernel_height = 0, kernel_width = 0;
  int64_t groups = 1;
  int64_t operations = 1;  // in its graph; more than 1: it is fused
  // The kinds of batch norm around it in its graph.
  bool is_normalised = false;   // it reads relu(x scale + shift)
  bool has_statistics = false;  // its output is summed up
  bool has_norm_sums = false;   // its gradient is summed up for a norm's weight and bias
};

// Makes the heuristics offer nothing, from here on, for graphs with a convolution for which
// `refuses` is true; no plan can be made for them either. With an empty function all are supported
// again.
void RefuseConvolutions(std::function<bool(const ConvolutionShape&)> refuses);

// Does the same for graphs with attention, either as one operation or as two matrix products.
void RefuseAttention(bool refuses);

// Makes executions of plans fail, from here on, if `fails` is true for the engine's index. It is
// asked before the work is queued. With an empty function all succeed again.
void FailRuns(std::function<bool(int64_t engine)> fails);

// Makes executions of plans compute something else, from here on, if `spoils` is true for the
// engine's index: the last element of each tensor that they write is wrong. With an empty function
// all are right again.
void SpoilRuns(std::function<bool(int64_t engine)> spoils);

// Calls `watch`, from here on, on each thread that makes a plan which is not made from a text. With
// an empty function nothing is called again.
void WatchPlans(std::function<void()> watch);

// Makes plans have no text, from here on, as those of some of cuDNN's engines.
void RefusePlanTexts(bool refuses);

// Makes each handle take so much memory of its device, from here on. At first it takes none.
void SetHandleBytes(int64_t bytes);

// Makes plans of graphs with a convolution take so many microseconds of the emulated device's time,
// from here on. With an empty function, each takes one again, like all other work.
void SetConvolutionTimes(std::function<int64_t(const ConvolutionShape&)> microseconds);

// The backend descriptors and handles that were created and not destroyed.
int64_t LiveCudnnObjects();
// Counts only the handles.
int64_t LiveCudnnHandles();

// The plans that were executed so far. A plan in a CUDA graph counts with every launch.
int64_t PlansRun();

}  // namespace trainyard::cuda_on_cpu
