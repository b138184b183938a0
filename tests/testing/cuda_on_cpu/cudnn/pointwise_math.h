// The functions of pointwise operations on single elements.
#pragma once

#include <cudnn_graph.h>

namespace trainyard::cuda_on_cpu::cudnn {

// Constants of some functions.
struct PointwiseSettings {
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  float lower_clip = 0;  // of relu
  float upper_clip = 0;
  float lower_clip_slope = 0;
  float elu_alpha = 1;
  float softplus_beta = 1;
  float swish_beta = 1;
};

// A function of one to three elements, which ignores those that it does not need. Gradients take
// (x, dy).
using PointwiseFunction = float (*)(float x, float b, float t, const PointwiseSettings& settings);

// The number of operands, and the function: null for modes that the emulation does not have.
struct PointwiseRule {
  int inputs = 0;
  bool is_gradient = false;
  PointwiseFunction function = nullptr;
};
PointwiseRule PointwiseRuleOf(cudnnPointwiseMode_t mode);

}  // namespace trainyard::cuda_on_cpu::cudnn
