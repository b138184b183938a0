// Defines what cuDNN can be asked to compute: a convolution or an attention of one shape, and the
// memory of one execution of it.
#pragma once

#include <cstdint>
#include <string>

#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda::dnn {

// One convolution of a step. Channels are those in memory, including padding. Tensors are NHWC; the
// weight is [out_channels, kernel, kernel, channels / groups].
struct ConvProblem {
  enum class Kind { kForward, kInputGradient, kWeightGradient };
  Kind kind = Kind::kForward;
  // The type of x, y, their gradients, the weight and its gradient. Bias and sums are f32.
  Type type = Type::kBf16;
  bool tf32 = false;  // f32 products may be taken in tf32
  int64_t rows = 1;
  int64_t channels = 1, height = 1, width = 1;
  int64_t out_channels = 1, out_height = 1, out_width = 1;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1, groups = 1;
  // The elements from pixel to pixel of x (or dx) and y (or dy): the channels, or more within a
  // wider tensor.
  int64_t x_stride = 1, y_stride = 1;
  // For kForward: y = relu(conv + bias [out_channels]).
  bool bias = false;
  bool relu = false;
  // For kForward without bias and relu: also takes the sums and sums of squares of y over its
  // pixels, each f32 [out_channels].
  bool statistics = false;
  // For kForward without bias and relu, and for kWeightGradient: the convolution's input is
  // relu(x scale + shift), as a batch norm and its rectifier compute it, and lies nowhere. scale
  // and shift are of `type` [channels].
  bool normalises = false;
  // For kInputGradient: x is the rectified output of a batch norm. Its gradient is written as zero
  // where x was not positive, and the gradients of the norm's weight and bias are summed up, f32
  // [channels] each. The gradient at the norm's input is left to the caller.
  bool norm_sums = false;
  // For kWeightGradient of 16-bit types: the gradient is f32 nevertheless. cuDNN does that only for
  // packed tensors without groups, on few engines. Without it, sums are rounded to `type` once,
  // which all engines do.
  bool f32_gradient = false;

  // Returns a unique text of one line: "fwd bf16 n128 c64 32x32 k64 3x3 s1 p1 d1 g1 ...".
  std::string Key() const;
  // Returns the key without the rows, which problems have in common that differ in nothing else.
  std::string Family() const;
};

// Causal attention of queries, keys and values that lie next to each other: x [rows, positions, 3,
// heads, width] -> y [rows, positions, heads, width], logsum f32 [rows, heads, positions], which is
// the log of the sum of the exponentials of the scaled scores.
struct AttentionProblem {
  bool is_gradient = false;  // computes (dy, x, y, logsum) -> dx, laid out as x
  Type type = Type::kBf16;
  int64_t rows = 1, positions = 1, heads = 1, width = 1;

  std::string Key() const;
  std::string Family() const;
  // Returns true if cuDNN's gradients are known to be right: causal, no mask tensor, positions a
  // multiple of 128, width a multiple of 8 and at most 128, 16-bit types.
  bool is_safe() const;
};

// The batch norm of ConvProblem::norm_sums. All but `input`, which lies as x does, are f32
// [channels].
struct NormMemory {
  void* input = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;  // 1 / standard deviation
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* dweight = nullptr;
  float* dbias = nullptr;
  float* factors = nullptr;  // [3, channels], which cuDNN also writes
};

// The memory of one execution. Members that the problem does not have stay null.
struct ConvMemory {
  void* x = nullptr;       // or dx
  void* weight = nullptr;  // or the weight's gradient
  void* y = nullptr;       // or dy
  const float* bias = nullptr;
  float* sum = nullptr;
  float* square_sum = nullptr;
  const void* scale = nullptr;  // of ConvProblem::normalises
  const void* shift = nullptr;
  NormMemory norm = {};
};
struct AttentionMemory {
  void* x = nullptr;
  void* y = nullptr;
  float* logsum = nullptr;
  void* dy = nullptr;
  void* dx = nullptr;
};

}  // namespace trainyard::engine::cuda::dnn
