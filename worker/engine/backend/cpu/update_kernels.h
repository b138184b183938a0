// Declares the optimizers' rules over a block of one parameter, vectorised, for three instruction
// sets.
//
// All sets give the same bits: products and sums are rounded one by one (no fused multiply-add, see
// CMakeLists.txt), and sums of squares run in a fixed number of lanes. So ranks on different
// machines make the same update. Only plain types here: see kernels.h.
#pragma once

#include <stdint.h>

namespace trainyard::engine::cpu {

// Sums of a block use this many lanes, whatever the instruction set.
inline constexpr int kSumLanes = 16;

// The numbers of one update for one block; optim/rules.def has the rules.
struct UpdateRule {
  float lr;  // multiplied by the ratio for layer-wise rules
  float momentum, weight_decay;
  float beta1, rest1;  // each rest is 1 - beta, rounded once
  float beta2, rest2;
  float eps, first_correction, second_correction;
  float gradient_scale;
  bool nesterov;
};

// Each member points to `count` elements. Slots that the rule does not have are null.
struct UpdateBlock {
  int64_t count;
  float* parameter;
  float* gradient;
  float* first;   // momentum, exp_avg
  float* second;  // exp_avg_sq
};

// A rule clears the gradient, and returns false if an element of it was NaN or infinite.
using UpdateKernel = bool(const UpdateRule& rule, const UpdateBlock& block);

// The kernels of the rules.
struct UpdateKernels {
  const char* name;

  // There is one kernel for each rule. LAMB needs a ratio between its two halves: `lamb_moments`
  // first advances exp_avg and exp_avg_sq, with the sums of squares of parameter and update; then
  // `lamb` takes the step.
#define TY_RULE(kind, rule_name, keeps, is_layerwise) UpdateKernel* rule_name;
#include "worker/engine/optim/rules.def"
#undef TY_RULE
  bool (*lamb_moments)(const UpdateRule& rule, const UpdateBlock& block, double* parameter_squares,
                       double* update_squares);

  double (*square_sum)(const float* values, int64_t count);
  // average = keep * average + rest * parameter.
  void (*fold_average)(float keep, float rest, const float* parameter, float* average,
                       int64_t count);
};

// Returns the kernels for the same instruction set as BestKernels.
const UpdateKernels& BestUpdateKernels();

extern const UpdateKernels kBaselineUpdateKernels;
extern const UpdateKernels kAvx2UpdateKernels;
extern const UpdateKernels kAvx512UpdateKernels;

}  // namespace trainyard::engine::cpu
