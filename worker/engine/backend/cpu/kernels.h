// Declares loops that are limited by memory, vectorised for three instruction sets, and for bf16 a
// fourth.
//
// T is the type of activations and their gradients in memory, float or Bf16; arithmetic, statistics
// and parameters are floats.
//
// A tensor of images is a row of planes: [rows, channel blocks][H W][block], block one of 1 (plain
// NCHW), 8 or 16 (oneDNN's nChw8c and nChw16c; channels padded with zeros, which every kernel
// keeps zero). Pooling and normalisation work on one plane; the caller loops, and spreads planes
// over threads. Only plain types here: see CMakeLists.txt.
#pragma once

#include <stdint.h>

#include "worker/engine/backend/cpu/kernels_winograd.h"

namespace trainyard::engine::cpu {

// A bf16 number is the upper half of a float.
struct Bf16 {
  uint16_t bits;
};

struct PoolShape {
  int64_t height, width;          // of the input plane
  int64_t out_height, out_width;  // of the output plane
  int64_t kernel, stride, padding;
  bool count_padding;  // counts in the divisor of an average
};

// The position of a window through which no gradient flows (see the fused relu of max_pool).
inline constexpr uint8_t kNoMaximum = 255;

struct LrnRule {
  int64_t size;                  // of the window
  float k, alpha_by_size, beta;  // s = k + alpha_by_size * sum of squares
};

struct DropoutRule {
  uint32_t key[2];
  uint32_t layer, row, step;
  uint32_t threshold;  // random words below it drop their element
  float scale;         // the factor of what is kept
};

template <class T>
struct Kernels {
  const char* name;

  // y = max(x, 0), and a NaN stays. y may be x.
  void (*relu)(const T* x, T* y, int64_t count);
  // dx = dy if y > 0, else 0. dx may be dy.
  void (*relu_gradient)(const T* dy, const T* y, T* dx, int64_t count);
  // Their errors are below 3e-7, or 3e-7 times a larger result. y may be x.
  void (*tanh)(const T* x, T* y, int64_t count);
  void (*sigmoid)(const T* x, T* y, int64_t count);
  void (*gelu)(const T* x, T* y, int64_t count);
  void (*gelu_tanh)(const T* x, T* y, int64_t count);
  // dx may be dy. tanh and sigmoid know their slope from their output, gelu from its input.
  void (*tanh_gradient)(const T* dy, const T* y, T* dx, int64_t count);
  void (*sigmoid_gradient)(const T* dy, const T* y, T* dx, int64_t count);
  void (*gelu_gradient)(const T* dy, const T* x, T* dx, int64_t count);
  void (*gelu_tanh_gradient)(const T* dy, const T* x, T* dx, int64_t count);
  // y = a + b. y may be either.
  void (*add)(const T* a, const T* b, T* y, int64_t count);
  // y = a + b. y may be a.
  void (*add_floats)(const T* a, const float* b, T* y, int64_t count);
  // sum += x.
  void (*accumulate)(const T* x, float* sum, int64_t count);
  // These copy, and convert between T and float.
  void (*load)(const T* x, float* y, int64_t count);
  void (*store)(const float* x, T* y, int64_t count);

  // One row of dropout (graph/dropout.h), [count] in NCHW order. y may be x.
  void (*dropout)(const DropoutRule& rule, int64_t count, const T* x, T* y);
  // One row, [blocks][plane][block]. `scratch` holds LrnScratch floats.
  void (*lrn)(const LrnRule& rule, int64_t blocks, int64_t plane, int64_t block, const T* x, T* y,
              float* scratch);
  void (*lrn_gradient)(const LrnRule& rule, int64_t blocks, int64_t plane, int64_t block,
                       const T* dy, const T* x, T* dx, float* scratch);

  // y = exp(scale x - m) / sum, with m the largest scale x and sum the sum of the exponentials. y
  // may be x.
  void (*softmax)(int64_t count, float scale, const float* x, float* y, float* largest, float* sum);
  // y = exp(scale x - shift). y may be x.
  void (*exponential)(int64_t count, float scale, float shift, const float* x, float* y);
  // dx = scale p (dp - sum of p dp). dx may be either.
  void (*softmax_gradient)(int64_t count, float scale, const float* p, const float* dp, float* dx);
  // Normalises one vector of layer_norm. `inverse` receives 1 / sqrt(variance + eps).
  void (*layer_norm)(int64_t count, float eps, const T* x, const float* weight, const float* bias,
                     T* y, float* mean, float* inverse);
  // dx may be dy.
  void (*layer_norm_gradient)(int64_t count, float mean, float inverse, const T* dy, const T* x,
                              const float* weight, T* dx);
  // Adds to dweight and dbias what `vectors` vectors, `stride` apart, contribute to `count`
  // features.
  void (*layer_norm_sums)(int64_t vectors, int64_t stride, int64_t count, const float* mean,
                          const float* inverse, const T* dy, const T* x, float* dweight,
                          float* dbias);

  // index may be null. With `relu`, windows whose maximum is not positive get kNoMaximum.
  void (*max_pool)(const PoolShape& shape, int64_t block, const T* x, T* y, uint8_t* index,
                   bool relu);
  // If windows overlap, gradients are summed in `sums`, a plane of floats. If T is float, they are
  // summed in dx, and `sums` may be null.
  void (*max_pool_gradient)(const PoolShape& shape, int64_t block, const T* dy,
                            const uint8_t* index, T* dx, float* sums);
  void (*avg_pool)(const PoolShape& shape, int64_t block, const T* x, T* y);
  void (*avg_pool_gradient)(const PoolShape& shape, int64_t block, const T* dy, T* dx, float* sums);
  // y[block] is the mean over the plane; the gradient is dy / plane everywhere.
  void (*mean)(int64_t plane, int64_t block, const T* x, T* y);
  void (*mean_gradient)(int64_t plane, int64_t block, const T* dy, T* dx);

  // Computes mean[block], and the sum of squared distances from it.
  void (*moments)(int64_t plane, int64_t block, const T* x, float* mean, float* distances);
  // y = x scale + shift, per lane of the block, rectified with `relu`.
  void (*normalize)(int64_t plane, int64_t block, const T* x, const float* scale,
                    const float* shift, bool relu, T* y);
  // Computes the sums over the plane of g and g (x - mean), where g is dy. If scale and shift are
  // given (not null), g is 0 unless x scale + shift > 0, which is where normalize with relu let it
  // through.
  void (*norm_gradient_sums)(int64_t plane, int64_t block, const T* dy, const T* x,
                             const float* scale, const float* shift, const float* mean, float* sum,
                             float* sum_x);
  // dx = g a + x b + c + addend per lane; the addend may be null. dx may be dy, x or the addend.
  void (*norm_gradient)(int64_t plane, int64_t block, const T* dy, const T* x, const float* scale,
                        const float* shift, const float* a, const float* b, const float* c,
                        const T* addend, T* dx);
  // y = max(x scale + shift + residual, 0). The mask, which may be null, gets a bit for each
  // element that says whether y is positive. y may be the residual.
  void (*normalize_residual)(int64_t plane, int64_t block, const T* x, const float* scale,
                             const float* shift, const T* residual, T* y, uint8_t* mask);
  // g = dy + second if the mask has a bit, else 0. Computes the sums over the plane of g and g (x -
  // mean). second may be null; g may be either.
  void (*residual_gradient_sums)(int64_t plane, int64_t block, const T* dy, const T* second,
                                 const uint8_t* mask, const T* x, const float* mean, T* g,
                                 float* sum, float* sum_x);

  // Null if the set has too few registers for it.
  const WinogradKernels* winograd;
};

// Returns the bytes of a plane's mask. Bit i % 8 of byte i / 8 belongs to element i.
inline int64_t MaskBytes(int64_t plane, int64_t block) {
  return (plane * block + 7) / 8;
}

// Returns the floats of scratch for a row of this many channels, including those that fill the last
// block.
inline int64_t LrnScratch(const LrnRule& rule, int64_t lanes) {
  return 4 * lanes + 2 * (lanes + 2 * rule.size);
}

// Returns the best set that this machine can run. There is one for Bf16, for machines whose
// products are in bf16 too (see CheckPrecision).
template <class T>
const Kernels<T>& BestKernels();
template <>
const Kernels<float>& BestKernels();
template <>
const Kernels<Bf16>& BestKernels();

extern const Kernels<float> kBaselineKernels;
extern const Kernels<float> kAvx2Kernels;
extern const Kernels<float> kAvx512Kernels;
extern const Kernels<Bf16> kBf16Kernels;

}  // namespace trainyard::engine::cpu
