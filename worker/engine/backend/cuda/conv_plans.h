// Finds cuDNN's plans for convolutions, and decides by their times what of the batch norms around a
// convolution becomes a part of it.
//
// A batch norm and its rectifier take three passes over their input forward: one for statistics,
// and one to read the input and write the output. cuDNN can do without them:
//
//   convolution ── x ──> batch norm, relu ── y ──> convolution
//
// - With `statistics`, the convolution before the norm sums up its output.
// - With `normalises`, the one after the norm, and the gradient of its weight, read x and
//   compute y, which is then never written.
// - Backward, with `norm_sums`, the gradient of the convolution after the norm rectifies the
//   gradient at y, which it makes, and sums it up for the norm's weight and bias. That saves a pass
//   over this gradient and x.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/problem.h"
#include "worker/engine/backend/cuda/lowering.h"

namespace trainyard::engine::cuda {

// The answer of cuDNN to a problem.
struct FoundPlan {
  const dnn::Plan* plan = nullptr;  // null if only our own kernels can do it
  absl::Status refusal = {};        // then this says why
};
struct ForwardPlan : FoundPlan {
  bool has_statistics = false;  // it also sums up its output
};
// The plan that computes the gradient of a weight, and the type of the gradient that it writes.
struct WeightGradientPlan : FoundPlan {
  Type type = Type::kF32;
};

struct InputGradientPlan : FoundPlan {
  bool has_norm_sums = false;  // it also rectifies the gradient, and sums it up
};

// Returns the problem of a convolution, or of a gradient of it, of an image at x to one at y. An
// input that a batch norm has not written (Lowering::unwritten_norms) is normalised.
dnn::ConvProblem ConvProblemOf(Lowering& lowering, const Node& node, const Place& x,
                               const Place& y);

// These return the plan, or the refusal if cuDNN has none, or the error of a device.
absl::StatusOr<FoundPlan> FindConvPlan(Lowering& lowering, const dnn::ConvProblem& problem);
// It takes statistics if a batch norm wants them and that saves time.
absl::StatusOr<ForwardPlan> FindForwardPlan(Lowering& lowering, const Node& conv,
                                            const dnn::ConvProblem& problem);
// The type is f32 if cuDNN is as fast with it, since that saves a conversion and a rounding.
absl::StatusOr<WeightGradientPlan> FindWeightGradientPlan(Lowering& lowering,
                                                          dnn::ConvProblem problem);

// Returns the batch_norm_gradient that alone reads the gradient that the node computes, and whose
// sums the convolution could take, or null.
const Node* NormGradientOf(const Lowering& lowering, const Node& input_gradient);
// It takes those sums if there is such a norm and that saves time.
absl::StatusOr<InputGradientPlan> FindInputGradientPlan(Lowering& lowering, const Node& node,
                                                        dnn::ConvProblem problem);

// Returns true if all that read the output of a batch_norm should read its input at `x` and
// normalise it themselves, since they can, and save time.
absl::StatusOr<bool> ReadersNormalise(Lowering& lowering, const Node& norm, const Place& x);

}  // namespace trainyard::engine::cuda
