// Loops where memory is the limit, vectorised, for three instruction sets.
//
// A tensor of images is a row of planes: [rows, channel blocks][H W][block], block one of 1 (plain
// NCHW), 8 or 16 (oneDNN's nChw8c and nChw16c; channels padded with zeros, which every kernel
// keeps zero). Pooling and normalisation work on one plane; the caller loops, and spreads planes
// over threads. Only plain types here: see CMakeLists.txt.
#pragma once

#include <stdint.h>

namespace trainyard::engine::cpu {

struct PoolShape {
  int64_t height, width;          // of the input plane
  int64_t out_height, out_width;  // of the output plane
  int64_t kernel, stride, padding;
  bool count_padding;  // in the divisor of an average
};

// Position of a window through which no gradient flows (see the fused relu of max_pool).
inline constexpr uint8_t kNoMaximum = 255;

struct LrnRule {
  int64_t size;                  // of the window
  float k, alpha_by_size, beta;  // s = k + alpha_by_size * sum of squares
};

struct DropoutRule {
  uint32_t key[2];
  uint32_t layer, row, step;
  uint32_t threshold;  // words below it drop their element
  float scale;         // of what is kept
};

struct Kernels {
  const char* name;

  // y = max(x, 0); a NaN stays. y may be x.
  void (*relu)(const float* x, float* y, int64_t count);
  // dx = dy where y > 0, else 0. dx may be dy.
  void (*relu_gradient)(const float* dy, const float* y, float* dx, int64_t count);
  // Their errors are below 3e-7, or 3e-7 times a larger result. y may be x.
  void (*tanh)(const float* x, float* y, int64_t count);
  void (*sigmoid)(const float* x, float* y, int64_t count);
  void (*gelu)(const float* x, float* y, int64_t count);
  void (*gelu_tanh)(const float* x, float* y, int64_t count);
  // dx may be dy. tanh and sigmoid know their slope from their output, gelu from its input.
  void (*tanh_gradient)(const float* dy, const float* y, float* dx, int64_t count);
  void (*sigmoid_gradient)(const float* dy, const float* y, float* dx, int64_t count);
  void (*gelu_gradient)(const float* dy, const float* x, float* dx, int64_t count);
  void (*gelu_tanh_gradient)(const float* dy, const float* x, float* dx, int64_t count);
  // y = a + b. y may be either.
  void (*add)(const float* a, const float* b, float* y, int64_t count);

  // One row of dropout (graph/dropout.h), [count] in NCHW order. y may be x.
  void (*dropout)(const DropoutRule& rule, int64_t count, const float* x, float* y);
  // One row, [blocks][plane][block]. `scratch` holds LrnScratch floats.
  void (*lrn)(const LrnRule& rule, int64_t blocks, int64_t plane, int64_t block, const float* x,
              float* y, float* scratch);
  void (*lrn_gradient)(const LrnRule& rule, int64_t blocks, int64_t plane, int64_t block,
                       const float* dy, const float* x, float* dx, float* scratch);

  // y = exp(scale x - m) / sum, m the largest scale x, sum that of the exponentials. y may be x.
  void (*softmax)(int64_t count, float scale, const float* x, float* y, float* largest, float* sum);
  // y = exp(scale x - shift). y may be x.
  void (*exponential)(int64_t count, float scale, float shift, const float* x, float* y);
  // dx = scale p (dp - sum of p dp). dx may be either.
  void (*softmax_gradient)(int64_t count, float scale, const float* p, const float* dp, float* dx);
  // One vector of layer_norm; `inverse` gets 1 / sqrt(variance + eps).
  void (*layer_norm)(int64_t count, float eps, const float* x, const float* weight,
                     const float* bias, float* y, float* mean, float* inverse);
  // dx may be dy.
  void (*layer_norm_gradient)(int64_t count, float mean, float inverse, const float* dy,
                              const float* x, const float* weight, float* dx);
  // Adds to dweight and dbias what `vectors` vectors, `stride` apart, contribute to `count`
  // features.
  void (*layer_norm_sums)(int64_t vectors, int64_t stride, int64_t count, const float* mean,
                          const float* inverse, const float* dy, const float* x, float* dweight,
                          float* dbias);

  // index may be null. With `relu`, windows whose maximum is not positive get kNoMaximum.
  void (*max_pool)(const PoolShape& shape, int64_t block, const float* x, float* y, uint8_t* index,
                   bool relu);
  void (*max_pool_gradient)(const PoolShape& shape, int64_t block, const float* dy,
                            const uint8_t* index, float* dx);
  void (*avg_pool)(const PoolShape& shape, int64_t block, const float* x, float* y);
  void (*avg_pool_gradient)(const PoolShape& shape, int64_t block, const float* dy, float* dx);
  // y[block]: mean over the plane; and dy / plane everywhere.
  void (*mean)(int64_t plane, int64_t block, const float* x, float* y);
  void (*mean_gradient)(int64_t plane, int64_t block, const float* dy, float* dx);

  // mean[block], and the sum of squared distances from it.
  void (*moments)(int64_t plane, int64_t block, const float* x, float* mean, float* distances);
  // y = x scale + shift, per lane of the block, rectified with `relu`.
  void (*normalize)(int64_t plane, int64_t block, const float* x, const float* scale,
                    const float* shift, bool relu, float* y);
  // sums over the plane of g and g (x - mean), where g is dy; with scale and shift given (not
  // null), only where x scale + shift > 0: where normalize with relu let it through.
  void (*norm_gradient_sums)(int64_t plane, int64_t block, const float* dy, const float* x,
                             const float* scale, const float* shift, const float* mean, float* sum,
                             float* sum_x);
  // dx = g a + x b + c + addend per lane; the addend may be null. dx may be dy, x or the addend.
  void (*norm_gradient)(int64_t plane, int64_t block, const float* dy, const float* x,
                        const float* scale, const float* shift, const float* a, const float* b,
                        const float* c, const float* addend, float* dx);
  // y = max(x scale + shift + residual, 0), and a bit of the mask, which may be null, for each
  // element: whether y is positive. y may be the residual.
  void (*normalize_residual)(int64_t plane, int64_t block, const float* x, const float* scale,
                             const float* shift, const float* residual, float* y, uint8_t* mask);
  // g = dy + second where the mask has a bit, else 0, and sums over the plane of g and
  // g (x - mean). second may be null; g may be either.
  void (*residual_gradient_sums)(int64_t plane, int64_t block, const float* dy, const float* second,
                                 const uint8_t* mask, const float* x, const float* mean, float* g,
                                 float* sum, float* sum_x);
};

// Bytes of a plane's mask: bit i % 8 of byte i / 8 is that of element i.
inline int64_t MaskBytes(int64_t plane, int64_t block) {
  return (plane * block + 7) / 8;
}

// Floats of scratch for a row of so many channels, with those that fill the last block.
inline int64_t LrnScratch(const LrnRule& rule, int64_t lanes) {
  return 4 * lanes + 2 * (lanes + 2 * rule.size);
}

// The best set that this machine can run.
const Kernels& BestKernels();

extern const Kernels kBaselineKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

}  // namespace trainyard::engine::cpu
