// cuDNN's graphs: convolutions and attention of one shape each, planned once.
//
// A plan is one engine of cuDNN, with its settings, for one problem. Candidates come from cuDNN's
// heuristics; those that cannot be built, need too much workspace or break determinism are left
// out; of the rest the fastest is taken, measured on the device, or the first one where nothing is
// measured. What was chosen is kept in a cache file by problem, architecture and version of cuDNN.
//
// Plans can be made without any GPU too, for a device that a JSON text describes: so CI sees
// whether every graph that the models need has a plan, and the memory of a step can be planned.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda::dnn {

// One convolution of a step. Channels are those in memory, padding included; tensors are NHWC, the
// weight [out_channels, kernel, kernel, channels / groups].
struct ConvProblem {
  enum class Kind { kForward, kInputGradient, kWeightGradient };
  Kind kind = Kind::kForward;
  // Of x, y, their gradients, the weight and its gradient. Bias and sums are f32.
  Type type = Type::kBf16;
  bool tf32 = false;  // f32 products may be taken in tf32
  int64_t rows = 1;
  int64_t channels = 1, height = 1, width = 1;
  int64_t out_channels = 1, out_height = 1, out_width = 1;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1, groups = 1;
  // Elements from pixel to pixel of x (or dx) and y (or dy): channels, or more within a wider
  // tensor.
  int64_t x_stride = 1, y_stride = 1;
  // kForward: y = relu(conv + bias [out_channels]).
  bool bias = false;
  bool relu = false;
  // kForward, without the two above: also sums and sums of squares of y over its pixels, f32
  // [out_channels] each.
  bool statistics = false;
  // kWeightGradient of 16-bit types: the gradient is f32 all the same. cuDNN does that for packed
  // tensors without groups alone, on few engines; without it sums are rounded to `type` once, and
  // all engines do.
  bool f32_gradient = false;

  // "fwd bf16 n128 c64 32x32 k64 3x3 s1 p1 d1 g1 ...": one line, unique.
  std::string Key() const;
};

// Causal attention of queries, keys and values that lie beside each other: x [rows, positions, 3,
// heads, width] -> y [rows, positions, heads, width], logsum f32 [rows, heads, positions], the log
// of the sum of the exponentials of the scaled scores.
struct AttentionProblem {
  bool is_gradient = false;  // (dy, x, y, logsum) -> dx, laid out as x
  Type type = Type::kBf16;
  int64_t rows = 1, positions = 1, heads = 1, width = 1;

  std::string Key() const;
  // Where cuDNN's gradients are known to be right: causal, no mask tensor, positions a multiple of
  // 128, width a multiple of 8 and at most 128, 16-bit types.
  bool is_safe() const;
};

// The memory of one execution. What the problem does not have stays null.
struct ConvMemory {
  void* x = nullptr;       // or dx
  void* weight = nullptr;  // or the weight's gradient
  void* y = nullptr;       // or dy
  const float* bias = nullptr;
  float* sum = nullptr;
  float* square_sum = nullptr;
};
struct AttentionMemory {
  void* x = nullptr;
  void* y = nullptr;
  float* logsum = nullptr;
  void* dy = nullptr;
  void* dx = nullptr;
};

// What plans are told by, for tables and tests.
struct PlanFacts {
  std::string engine;  // cuDNN's name or number of engine and settings
  int64_t workspace_bytes = 0;
  int candidates = 0;       // that could be built
  double microseconds = 0;  // of the fastest; 0: not measured
  bool from_cache = false;
};

// Immutable; may be executed by one thread at a time for each handle, which the planner owns.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual const PlanFacts& facts() const = 0;
  // Enqueues it on the stream; may be captured. `workspace`: facts().workspace_bytes, 256-byte
  // aligned. FAILED_PRECONDITION of a plan that was made without a device; INVALID_ARGUMENT for
  // memory that is missing, or not aligned to kVectorBytes.
  virtual absl::Status Run(const ConvMemory& memory, void* workspace,
                           cudaStream_t stream) const = 0;
  virtual absl::Status Run(const AttentionMemory& memory, void* workspace,
                           cudaStream_t stream) const = 0;
};

struct PlannerOptions {
  // A small ceiling silently drops the fast engines.
  int64_t workspace_bytes_max = int64_t{256} << 20;
  // Measure candidates on the device; takes memory while it does.
  bool autotunes = true;
  int candidates_max = 8;  // that are measured
  // Leaves out engines whose sums are taken in another order each time.
  bool deterministic = false;
  // Where choices are kept; empty: nowhere. Read and written whole, by rename; a file that cannot
  // be read is as good as none.
  std::string cache_path;
};

// Not thread-safe. Plans must not outlive it.
class Planner {
 public:
  virtual ~Planner() = default;
  // For the current device. UNAVAILABLE with what to do where there is no GPU or no driver.
  static absl::StatusOr<std::unique_ptr<Planner>> ForDevice(const PlannerOptions& options);
  // For a device described in cuDNN's JSON. INVALID_ARGUMENT for a text that is none.
  static absl::StatusOr<std::unique_ptr<Planner>> ForDescription(const std::string& json,
                                                                 const PlannerOptions& options);

  // NOT_FOUND where cuDNN has none for it. The same problem gives the same plan.
  virtual absl::StatusOr<const Plan*> Find(const ConvProblem& problem) = 0;
  virtual absl::StatusOr<const Plan*> Find(const AttentionProblem& problem) = 0;
  // For before a stream ends on which plans ran: cuDNN's handle would be left with it.
  virtual void ReleaseStream() = 0;
  // Writes the cache file where something new was chosen.
  virtual absl::Status SaveCache() = 0;
  // The current device in cuDNN's JSON; of ForDescription, the text.
  virtual absl::StatusOr<std::string> DeviceDescription() = 0;
};

}  // namespace trainyard::engine::cuda::dnn
