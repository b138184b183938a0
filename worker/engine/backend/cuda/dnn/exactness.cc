// Counts the products of each sum, and the roundings before it.
#include "worker/engine/backend/cuda/dnn/exactness.h"

#include <algorithm>

#include "worker/engine/backend/cuda/dnn/attention_graph.h"
#include "worker/engine/backend/cuda/dnn/conv_slots.h"

namespace trainyard::engine::cuda::dnn {

std::vector<WrittenSlot> WrittenBy(const ConvProblem& p) {
  // An engine may round what it computes of a normalised input after each of three operations.
  const double factors =
      (p.tf32 ? kTf32Roundoff : 0) + (p.normalises ? 3 * UnitRoundoff(p.type) : 0);
  const int64_t filter = p.kernel * p.kernel;
  const int64_t pixels = p.rows * p.out_height * p.out_width;
  switch (p.kind) {
    case ConvProblem::Kind::kInputGradient:
      // Engines may disagree about the sign of a norm's output that is almost zero, so one element
      // may differ by all that it is.
      if (p.norm_sums) {
        const Exactness sums = {Type::kF32, UnitRoundoff(p.type), p.rows * p.height * p.width};
        return {{kNormWeightGradient, sums}, {kNormBiasGradient, sums}};
      }
      return {{kX, {p.type, factors, p.out_channels / p.groups * filter}}};
    case ConvProblem::Kind::kWeightGradient:
      return {{kWeight, {p.f32_gradient ? Type::kF32 : p.type, factors, pixels}}};
    case ConvProblem::Kind::kForward:
      break;
  }
  const int64_t length = p.channels / p.groups * filter;
  std::vector<WrittenSlot> written = {{kY, {p.type, factors, length}}};
  if (p.statistics) {
    // An engine may add up its outputs before or after it rounds them.
    const Exactness sums = {Type::kF32, factors + UnitRoundoff(p.type), length + pixels};
    written.push_back({kSum, sums});
    written.push_back({kSquareSum, sums});
  }
  return written;
}

// Weights of attention and gradients of scores are rounded to the type before they are multiplied.
std::vector<WrittenSlot> WrittenBy(const AttentionProblem& p) {
  const int64_t length = p.positions + p.width;
  const Exactness sums = {p.type, UnitRoundoff(p.type), length};
  if (p.is_gradient) return {{kQueryGradient, sums}};
  return {{kOutput, sums}, {kLogsum, {Type::kF32, 0, length}}};
}

}  // namespace trainyard::engine::cuda::dnn
